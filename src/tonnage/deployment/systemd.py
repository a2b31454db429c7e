"""systemd units: one that stays, restarted and checked, or one that runs by a timer.

Options: systemd.service(5), systemd.exec(5), systemd.timer(5) of systemd 252.
"""

from __future__ import annotations

from typing import Final

from tonnage.deployment.described import Deployed

STOP_S: Final = 330  # a balancer drains for 300 s
START_S: Final = 960  # a model loads for 900 s at the longest
# no more rights than it needs; a GPU's devices stay visible, so no PrivateDevices
HARDENING: Final = """\
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes
UMask=0077
"""


def systemd_files(what: Deployed, *, program: str, home: str, user: str) -> dict[str, str]:
    """Name -> text. `program`: the `tonnage` of the pinned version; `home`: an absolute path that `user` may write."""
    unit = f"tonnage-{what.name}"
    files = {f"{unit}.service": _service(what, program=program, home=home, user=user)}
    if what.every_s is not None:
        files[f"{unit}.timer"] = _timer(what)
    return files


def _service(what: Deployed, *, program: str, home: str, user: str) -> str:
    command = " ".join(quoted(one) for one in (program, *what.args))
    lines = [
        "[Unit]", f"Description=Tonnage {what.version}: {what.verb} ({what.name})", "Wants=network-online.target",
        "After=network-online.target",
        *(() if what.every_s else ("StartLimitIntervalSec=600", "StartLimitBurst=5")), "",
        "[Service]", "Type=exec" if what.every_s is None else "Type=oneshot", f"ExecStart={command}",
        f"User={user}", f"Environment={quoted(f'TONNAGE_HOME={home}')}", f"WorkingDirectory={quoted_path(home)}",
        f"ReadWritePaths={' '.join(quoted(one) for one in (home, *_written(what)))}",
    ]  # fmt: skip
    if what.secrets:
        lines.append(f"EnvironmentFile=/etc/tonnage/{what.name}.env")
    if what.every_s is None:
        if what.port is not None:
            smoke = f" --smoke {quoted(f'/etc/tonnage/{what.name}.smoke.json')}" if what.smoke else ""
            url = f"http://127.0.0.1:{what.port}"
            lines += [f"ExecStartPost={quoted(program)} deploy check {url}{smoke} --timeout {START_S - 30}s",
                      f"TimeoutStartSec={START_S}"]  # fmt: skip
        if what.verb in ("serve", "gateway"):
            lines.append("ExecReload=/bin/kill -HUP $MAINPID")
        lines += ["Restart=on-failure", "RestartSec=5", "KillMode=mixed", f"TimeoutStopSec={STOP_S}"]
    return "\n".join([*lines, HARDENING, *(() if what.every_s else ("[Install]", "WantedBy=multi-user.target", ""))])


def _written(what: Deployed) -> tuple[str, ...]:
    """Folders outside of the home that it writes: that of a backup on a disk."""
    if what.verb != "backup":
        return ()
    return tuple(one for one in what.args[1:2] if one.startswith("/"))


def _timer(what: Deployed) -> str:
    """`Persistent` would need a calendar; what was missed while the machine was off runs soon after its start."""
    return "\n".join([
        "[Unit]", f"Description=Tonnage {what.version}: {what.verb} ({what.name}), again and again", "",
        "[Timer]", "OnBootSec=5min", f"OnUnitActiveSec={what.every_s:.0f}s", "RandomizedDelaySec=60", "",
        "[Install]", "WantedBy=timers.target", "",
    ])  # fmt: skip


def quoted(text: str) -> str:
    """A word of a command line as systemd reads it: % and $ are doubled, blanks and quotes put in quotes.

    >>> quoted("100 %")
    '"100 %%"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    plain = all(one.isalnum() or one in "-_./:=,+@" for one in escaped)
    return escaped if plain and escaped else f'"{escaped}"'


def quoted_path(path: str) -> str:
    """A path of a setting that takes one path, which is not split at blanks."""
    return path.replace("%", "%%")
