"""`mustit simulate`: the marketplace or the product server as a real HTTP server, for trying things out."""

import json
import re
import subprocess
import sys
from typing import Annotated

import typer

from mustit_pipeline.cli.list_options import LARGEST_NUMBER
from mustit_pipeline.cli.output import Json, err, out, print_json
from mustit_pipeline.cli.stopping import Stopped
from mustit_pipeline.settings import load_settings

app = typer.Typer(help="Simulated servers with switchable faults, for trying things out.", no_args_is_help=True)

SELLER = re.compile(r".*\S.*:[0-9]+", re.DOTALL)

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0 takes any free port.")]


@app.command("marketplace", epilog='Example: `mustit simulate marketplace --port 9001 --sellers "dmont:120"`')
def marketplace(
    port: Port = 0,
    sellers: Annotated[str, typer.Option("--sellers", help="Sellers to make: id:products,id:products")] = "",
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", min=0, max=LARGEST_NUMBER, help="The same seed makes the same world; a kept one keeps its own."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a simulated marketplace until Ctrl-C; its world is kept under MUSTIT_HOME."""
    settings = load_settings()
    arguments = [
        *("--requests-per-window", str(settings.requests_per_hour), "--window-seconds", str(settings.window_seconds)),
        *("--min-gap-seconds", str(settings.min_request_gap_seconds)),
        *("--first-page-no", str(settings.first_page_no), "--listing-path", settings.listing_path),
    ]
    if seed is not None:
        arguments.append(f"--seed={seed}")
    if sellers:
        for part in filter(None, sellers.split(",")):
            if SELLER.fullmatch(part) is None:
                raise typer.BadParameter(f"{part!r} is not id:products", param_hint="'--sellers'")
        arguments.append(f"--sellers={sellers}")
    _run("marketplace", port, arguments, as_json=as_json)


@app.command("product-server", epilog="Example: `mustit simulate product-server --port 9002`")
def product_server(port: Port = 0, as_json: Json = False) -> None:
    """Run a simulated product server until Ctrl-C; its state is kept under MUSTIT_HOME."""
    _run("product-server", port, [], as_json=as_json)


def _run(server: str, port: int, arguments: list[str], *, as_json: bool) -> None:
    state = load_settings().home / "simulator"
    command = [sys.executable, "-m", "mustit_pipeline.simulator", server, "--port", str(port), "--state", str(state)]
    # The simulator ends when its stdin closes, which happens however we end.
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--watch-stdin", *arguments], stdin=pipe, stdout=pipe) as process:
        try:
            if process.stdout is not None and (said := process.stdout.readline()):
                _announce(server, json.loads(said), str(state), as_json=as_json)
            code = process.wait()
        except (Stopped, KeyboardInterrupt) as stop:
            if isinstance(stop, Stopped):
                stop.is_taken = True
            process.terminate()
            code = process.wait()
    raise typer.Exit(0 if code in (0, -15, -2) else 1)


def _announce(server: str, listening: dict[str, str], state: str, *, as_json: bool) -> None:
    if as_json:
        print_json(listening)
    else:
        out.print(f"Simulated {server}: {listening['url']}", highlight=False)
        err.print(f"Control API under /_control/, state in {state}. Ctrl-C ends it.", highlight=False, soft_wrap=True)
