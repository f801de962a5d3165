"""`mustit db`: the schema."""

import typer

from mustit_pipeline.cli.output import Json, out, print_json
from mustit_pipeline.cli.runtime import add_missing_agents, upgrade, upgrade_dagster
from mustit_pipeline.foundation import schema
from mustit_pipeline.foundation.database import open_database
from mustit_pipeline.settings import load_settings

app = typer.Typer(help="The database schema.", no_args_is_help=True)


@app.command("upgrade", epilog="Example: `mustit db upgrade`")
def upgrade_schema(as_json: Json = False) -> None:
    """Bring the schema and Dagster's own tables up to date; safe to repeat, and to run twice at once."""
    before = upgrade(load_settings())
    added = add_missing_agents(load_settings())
    upgrade_dagster(load_settings())
    if added and not as_json:
        out.print(f"{added} built-in user agents were missing and are there again.", highlight=False)
    if as_json:
        print_json({"before": before.current, "now": before.expected})
    elif before.is_current:
        out.print(f"The schema is up to date ({before.expected}).")
    else:
        out.print(f"The schema went from {before.current or 'nothing'} to {before.expected}.")


@app.command("status", epilog="Example: `mustit db status --json`")
def show_status(as_json: Json = False) -> None:
    """Show which schema the database has and which one this code needs; exit 1 if they differ."""
    database = open_database(load_settings(), check_schema=False)
    try:
        with database.reading() as connection:
            found = schema.status(connection)
    finally:
        database.close()
    if as_json:
        print_json({"current": found.current, "expected": found.expected, "upToDate": found.is_current})
    else:
        out.print(f"The database has {found.current or 'no schema'}, this code needs {found.expected}.")
        if not found.is_current:
            out.print("Run `mustit db upgrade`.")
    raise typer.Exit(0 if found.is_current else 1)
