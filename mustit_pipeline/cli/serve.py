"""`mustit serve`: REST API, console and metrics."""

import socket
from typing import Annotated

import typer

from mustit_pipeline.cli.output import Json, err, print_json
from mustit_pipeline.cli.runtime import upgrade
from mustit_pipeline.cli.stopping import taken
from mustit_pipeline.settings import SettingsError, load_settings, with_changes
from mustit_pipeline.settings.api import listening_address
from mustit_pipeline.settings.wrong_setting import WrongSetting

FACTORY = "mustit_pipeline.web:create"
GRACE_SECONDS = 10
# uvicorn kills a worker that is silent for longer, one that still imports too: on a slow host its five seconds fail.
SILENCE_SECONDS = 60


def _address(host: str | None) -> str | None:
    try:
        return None if host is None else listening_address(host)
    except WrongSetting as error:
        raise typer.BadParameter(str(error)) from None


def serve(
    host: Annotated[
        str | None, typer.Option(callback=_address, help="Address to listen on, instead of MUSTIT_API_HOST.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Instead of MUSTIT_API_PORT.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that share the port.")] = 1,
    as_json: Json = False,
) -> None:
    """Serve the REST API, the console and the metrics until Ctrl-C or SIGTERM; requests in flight end first.

    Any number of servers on any hosts work on the same databases. `mustit up` runs one too. With --json the document
    comes before the first request and names the address.

    Example: `mustit serve --port 8080 --workers 2`
    """
    import uvicorn

    from mustit_pipeline.api.connections import Connection, allow_many_connections

    given = {"api_host": host, "api_port": port}
    settings = with_changes(load_settings(), **{name: value for name, value in given.items() if value is not None})
    refuse_taken_port("MUSTIT_API_PORT", settings.api_host, settings.api_port)
    if settings.embedded:
        upgrade(settings)
    scheme = "https" if settings.api_tls_cert is not None else "http"
    url = f"{scheme}://{settings.api_host}:{settings.api_port}"
    if as_json:
        print_json({"url": url, "workers": workers})
    else:
        err.print(f"serving on {url}", highlight=False)
    allow_many_connections()
    # A signal is the usual end of a server, after its cleanup.
    with taken():
        uvicorn.run(
            FACTORY,
            factory=True,
            host=settings.api_host,
            port=settings.api_port,
            workers=workers,
            ssl_certfile=settings.api_tls_cert,
            ssl_keyfile=settings.api_tls_key,
            proxy_headers=bool(settings.api_behind_proxy),
            forwarded_allow_ips=settings.api_behind_proxy or None,
            server_header=False,
            access_log=False,
            # Its loggers are configured with ours.
            log_config=None,
            http=Connection,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_worker_healthcheck=SILENCE_SECONDS,
        )


def free_port() -> int:
    """A port of this host on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def refuse_taken_port(variable: str, host: str, port: int) -> None:
    """Say which setting to change, where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise SettingsError(
                f"port {port} on {host} cannot be used ({error.strerror}): "
                f"stop what listens there, or set {variable} to another port",
                korean=f"{host}의 {port} 포트를 사용할 수 없습니다({error.strerror}). "
                f"그 포트를 쓰는 프로세스를 종료하거나 {variable}을(를) 다른 포트로 설정하세요",
            ) from None
