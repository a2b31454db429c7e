"""Deployments: `tonnage.deploy_files`, `tonnage.check_deployed`; updates of what runs are in `service_updates`."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tonnage import __version__
from tonnage.api.answers import Answer
from tonnage.api.declaring import Options, option
from tonnage.api.reading import read_seconds
from tonnage.api.service_updates import read_smoke_test
from tonnage.errors import InputError, TonnageError
from tonnage.files import save_for_user
from tonnage.values import dataclass

if TYPE_CHECKING:
    import httpx

    from tonnage.deployment.described import Deployed
    from tonnage.reports.rendering import Report
    from tonnage.serving.replicas.replica import SmokeTest

KINDS: Final = ("systemd", "compose", "kubernetes", "helm")
VERIFY_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions(Options):
    """Where and how a command is kept running."""

    kind: str = option("--as", "systemd, compose, kubernetes or helm.", default="systemd", metavar="KIND")
    port: int | None = option(
        "--port",
        "Where it listens. [default: its own; a gateway's file says it]",
        default=None,
        least=1,
        most=65_535,
        metavar="PORT",
    )
    every_s: float | None = option(
        "--every", "For a backup: run it so often.", default=None, metavar="TIME", read=read_seconds
    )
    secrets: tuple[str, ...] = option(
        "--secret", "A variable that it needs; its value stays in a file of yours. May be repeated.", default=(),
        metavar="NAME", repeated=True,
    )  # fmt: skip
    smoke: str | None = option("--smoke", "A request that must be answered with 200 after each start.",
                               default=None, metavar="FILE")  # fmt: skip
    image: str | None = option(
        "--image", "An image with its version. [default: the one of the Dockerfile that is written]", default=None,
        metavar="NAME:VERSION",
    )  # fmt: skip
    version: str | None = option("--version", "The version of Tonnage to pin. [default: this one]", default=None)
    gpus: int = option("--gpus", "GPUs for its container.", default=0, least=0, most=64)
    program: str | None = option(
        "--program", "systemd: the `tonnage` to run. [default: /opt/tonnage/VERSION/bin/tonnage]", default=None,
        metavar="PATH",
    )  # fmt: skip
    user: str = option("--user", "systemd: whose rights it has.", default="tonnage", metavar="NAME")
    home: str = option("--home", "systemd: its home.", default="/var/lib/tonnage", metavar="FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployedFiles:
    """What was written; `checks`: what was found out about the files here."""

    folder: Path
    files: tuple[str, ...]
    checks: tuple[str, ...]
    next_steps: tuple[str, ...]


def deploy_files(
    name: str, args: Sequence[str], folder: Path | str, options: DeployOptions | None = None
) -> Answer[DeployedFiles]:
    """Write the files that keep `tonnage ARGS` running as `name`, checked as far as this machine can.

    InputError for what cannot be kept running or a folder that has such files; TonnageError where a check refuses.
    """
    from tonnage.deployment.brought import FOLDER, bring
    from tonnage.deployment.described import FILES, described, require_known_version

    asked = options or DeployOptions()
    if asked.kind not in KINDS:
        raise InputError(f"found '{asked.kind}' for --as", hint=", ".join(KINDS))
    smoke = None
    if asked.smoke is not None:
        read_smoke_test(asked.smoke)
        smoke = Path(asked.smoke).read_text(encoding="utf-8")
    require_known_version(asked.version or __version__, __version__)
    place = f"/etc/tonnage/{name}" if asked.kind == "systemd" else FILES
    brought = bring(args, Path.cwd(), place=place)
    port = asked.port
    if args and args[0] == "gateway":
        port = _gateway_port(args, brought.args, brought.texts, asked)
    what = described(
        name, brought.args, version=asked.version or __version__, every_s=asked.every_s, port=port,
        secrets=asked.secrets, gpus=asked.gpus, image=asked.image, smoke=smoke, files=brought.texts,
    )  # fmt: skip
    files, checks, steps = _rendered(what, asked)
    files |= {f"{FOLDER}/{path}": text for path, text in brought.texts.items()}
    if brought.by_hand:
        steps = (f"put {', '.join(brought.by_hand)} where the command finds it: it is not carried", *steps)
    into = Path(folder)
    if there := [one for one in files if (into / one).exists()]:
        raise InputError(f"{into / there[0]} is there already", hint="name an empty folder")
    into.mkdir(parents=True, exist_ok=True)
    for one, text in files.items():
        save_for_user(into / one, text, parents=True)
    made = DeployedFiles(folder=into, files=tuple(files), checks=checks, next_steps=steps)
    return Answer(made, _files_report)


def _gateway_port(
    args: Sequence[str], moved: Sequence[str], texts: Mapping[str, str], asked: DeployOptions
) -> int | None:
    """The port that the gateway's file says; `--port` where the file is on the other machine alone. InputError where
    the two differ, or nobody outside a container could reach it."""
    import yaml
    from pydantic import ValidationError

    from tonnage.deployment.described import LOOPBACK
    from tonnage.gateway.file.entries import ListenEntry

    text = texts.get(PurePosixPath(moved[1]).name) if len(moved) > 1 and moved[1] != args[1] else None
    if text is None:
        return asked.port
    document = yaml.safe_load(text)
    try:
        listen = ListenEntry.model_validate((document or {}).get("listen") or {})
    except (AttributeError, ValidationError) as error:
        raise InputError(f"{args[1]}: `listen` cannot be read",
                         hint=f"`tonnage gateway start {args[1]} --dry-run` says what is wrong") from error  # fmt: skip
    if asked.port not in (None, listen.port):
        raise InputError(f"--port says {asked.port}, and {args[1]} listens on {listen.port}",
                         hint="leave --port out")  # fmt: skip
    if asked.kind != "systemd" and listen.host in LOOPBACK:
        raise InputError(f"in a container the gateway is reached from outside, and {args[1]} listens on {listen.host}",
                         hint="`listen: {host: 0.0.0.0}` in the file, with `keys:`")  # fmt: skip
    return listen.port


def _rendered(what: Deployed, asked: DeployOptions) -> tuple[dict[str, str], tuple[str, ...], tuple[str, ...]]:
    """Files, what was checked, what comes next."""
    if asked.kind == "systemd":
        from tonnage.deployment.systemd import systemd_files

        program = asked.program or f"/opt/tonnage/{what.version}/bin/tonnage"
        files = systemd_files(what, program=program, home=asked.home, user=asked.user)
        return files, (_verified(files, program),), _systemd_steps(what, program, asked, files)
    if what.every_s is not None:
        raise InputError(
            f"--every is of systemd's timers, not of {asked.kind}", hint="--as systemd, or a schedule there"
        )
    if asked.kind == "compose":
        from tonnage.deployment.compose import compose_files

        files = compose_files(what) | _smoke_file(what)
        return files, (), ("docker compose up --detach --wait", *_smoke_steps(what, f"http://127.0.0.1:{what.port}"))
    from tonnage.deployment.manifests import manifest_files, manifests

    checks = tuple(_judged(one) for one in manifests(what))
    built = () if what.image else (f"docker build -t {what.image_name} . (and push it where the cluster pulls from)",)
    if asked.kind == "helm":
        from tonnage.deployment.brought import FOLDER
        from tonnage.deployment.helm import helm_files

        install = f"helm upgrade --install {what.name} . --wait --atomic --timeout 16m"
        files = helm_files(what)
        checks = (*checks, _linted(files | {f"{FOLDER}/{path}": text for path, text in what.files}))
    secret = (
        (f"kubectl create secret generic tonnage-{what.name} --from-env-file={what.name}.env",) if what.secrets else ()
    )
    roll_out = f"kubectl rollout status deployment/tonnage-{what.name}"
    forward = f"kubectl port-forward service/tonnage-{what.name} {what.port} &"
    asked_there = _smoke_steps(what, f"http://127.0.0.1:{what.port}")
    if asked.kind == "helm":
        tested = (f"helm test {what.name}",) if what.port else ()
        return files | _smoke_file(what), checks, (*built, *secret, install, *tested)
    return manifest_files(what) | _smoke_file(what), checks, (
        *built, *secret, "kubectl apply -f manifests.yaml", roll_out, *((forward, *asked_there) if asked_there else ()),
    )  # fmt: skip


def _smoke_file(what: Deployed) -> dict[str, str]:
    """The smoke test beside the other files, where there is one."""
    return {} if what.smoke is None else {f"{what.name}.smoke.json": what.smoke}


def _smoke_steps(what: Deployed, url: str) -> tuple[str, ...]:
    """How it is asked where nothing asks it after each start by itself."""
    return () if what.smoke is None else (f"tonnage deploy check {url} --smoke {what.name}.smoke.json",)


def _systemd_steps(what: Deployed, program: str, asked: DeployOptions, files: dict[str, str]) -> tuple[str, ...]:
    venv = Path(program).parents[1]
    started = [one for one in files if one.endswith(".timer")] or list(files)
    return (
        *(() if asked.program else (f"python3 -m venv {venv}",
                                    f"{venv}/bin/pip install 'tonnage[{what.extras}]=={what.version}'")),
        f"useradd --system --home-dir {asked.home} --create-home {asked.user}",
        *((f"write {', '.join(what.secrets)} as NAME=VALUE lines to /etc/tonnage/{what.name}.env (mode 0600)",)
          if what.secrets else ()),
        *((f"mkdir -p /etc/tonnage/{what.name} && cp -r files/. /etc/tonnage/{what.name}/ "
           f"&& chmod -R a+rX /etc/tonnage/{what.name}",) if what.files else ()),
        *((f"cp {asked.smoke} /etc/tonnage/{what.name}.smoke.json",) if what.smoke else ()),
        f"cp {' '.join(files)} /etc/systemd/system/", "systemctl daemon-reload",
        f"systemctl enable --now {' '.join(started)}",
    )  # fmt: skip


def _verified(files: dict[str, str], program: str) -> str:
    """What `systemd-analyze verify` says of the units, with a stand-in for a program that is not here yet."""
    tool = shutil.which("systemd-analyze")
    if tool is None:
        return "not verified: systemd-analyze is not here"
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        for name, text in files.items():
            known = text if Path(program).exists() else text.replace(program, sys.executable)
            (folder / name).write_text(known, encoding="utf-8")
        done = subprocess.run([tool, "verify", "--man=no", *(str(folder / name) for name in files)],
                              capture_output=True, text=True, timeout=VERIFY_S, check=False)  # fmt: skip
    said = (done.stderr + done.stdout).replace(f"{held}/", "").strip()
    if done.returncode != 0:
        raise TonnageError(f"systemd-analyze verify refuses the units: {said}", hint="report it, with the command")
    return "systemd-analyze verify takes the units" + (f", and says: {said}" if said else "")


def _linted(files: dict[str, str]) -> str:
    """What `helm lint` says of the chart."""
    tool = shutil.which("helm")
    if tool is None:
        return "not linted: helm is not here"
    with tempfile.TemporaryDirectory() as held:
        for name, text in files.items():
            save_for_user(Path(held) / name, text, parents=True)
        done = subprocess.run([tool, "lint", "--strict", held], capture_output=True, text=True, timeout=VERIFY_S,
                              check=False)  # fmt: skip
    if done.returncode != 0:
        said = (done.stdout + done.stderr).replace(held, "chart").strip()
        raise TonnageError(f"helm lint refuses the chart: {said}", hint="report it, with the command")
    return "helm lint takes the chart"


def _judged(manifest: dict[str, Any]) -> str:
    from tonnage.places.kubernetes.checking.judging import judge

    verdict = judge(manifest)
    name = f"{manifest['kind']} {manifest['metadata']['name']}"
    if not verdict.accepted:
        words = "; ".join(f"{one.field}: {one.message}" for one in verdict.refusals)
        raise TonnageError(f"an API server would refuse {name}: {words}", hint="report it, with the command")
    left = f" (not checked: {', '.join(verdict.unchecked)})" if verdict.unchecked else ""
    return f"{name}: an API server would take it{left}"


def check_deployed(url: str, *, smoke: str | None = None, timeout_s: float = 60.0) -> Answer[str]:
    """Wait until a service is well, then ask its smoke test. TonnageError where it is not in time, or does not pass."""
    import httpx

    if not url.startswith(("http://", "https://")):
        raise InputError(f"'{url}' is not an address of a service", hint="http://127.0.0.1:8000")
    test = read_smoke_test(smoke)
    base, until, last = url.rstrip("/"), time.monotonic() + timeout_s, "no answer"
    began = time.monotonic()
    with httpx.Client(timeout=min(timeout_s, 10.0)) as client:
        while True:
            try:
                found = client.get(f"{base}/ready")
                if found.status_code == 404:
                    found = client.get(f"{base}/health")
                if found.status_code == 200:
                    break
                last = f"{found.url} answers {found.status_code}"
            except httpx.InvalidURL as error:
                raise InputError(f"'{url}' is not an address: {error}", hint="http://127.0.0.1:8000") from error
            except httpx.HTTPError as error:
                last = str(error) or type(error).__name__
            if time.monotonic() >= until:
                raise TonnageError(f"{base} is not well after {timeout_s:g} s: {last}", hint="look at its log")
            time.sleep(min(0.5, timeout_s))
        words = f"{base} is ready after {time.monotonic() - began:.1f} s"
        if test is not None:
            _ask(client, base, test)
            words += f"; the smoke test {test.path} passed"
    return Answer(words, _checked_report)


def _ask(client: httpx.Client, base: str, test: SmokeTest) -> None:
    import httpx

    head = {"Content-Type": "application/json"}
    try:
        answer = client.request(
            test.method, base + test.path, content=test.body, timeout=test.timeout_s, headers=head
        )  # fmt: skip
    except httpx.HTTPError as error:
        raise TonnageError(f"the smoke test {test.path} has no answer: {error!r}", hint="look at its log") from error
    if answer.status_code != 200:
        said = f"{answer.status_code}: {answer.text[:300]}"
        raise TonnageError(f"the smoke test {test.path} is answered with {said}", hint="look at its log")


def _checked_report(words: str) -> Report:
    from tonnage.reports.blocks import Page, Paragraph
    from tonnage.reports.rendering import Report

    return Report(
        page=lambda: Page(title="Check", blocks=(Paragraph(text=f"{words}."),)),
        document=lambda: {"schema": "tonnage/deployment-check@1", "well": True, "words": words},
        columns=("words",), rows=lambda: [[words]],
    )  # fmt: skip


def _files_report(made: DeployedFiles) -> Report:
    from tonnage.reports.blocks import Block, Bullets, Heading, Page, Paragraph
    from tonnage.reports.rendering import Report

    blocks: list[Block] = [Paragraph(text=f"Wrote {', '.join(made.files)} to {made.folder}.")]
    blocks += [Paragraph(text=f"{one}.") for one in made.checks]
    blocks += [Heading(text="Next"), Bullets(items=made.next_steps)]
    return Report(
        page=lambda: Page(title="Deployment", blocks=tuple(blocks)),
        document=lambda: {"schema": "tonnage/deployment@1", "folder": str(made.folder), "files": list(made.files),
                          "checks": list(made.checks), "next": list(made.next_steps)},
        columns=("file",), rows=lambda: [[one] for one in made.files],
    )  # fmt: skip
