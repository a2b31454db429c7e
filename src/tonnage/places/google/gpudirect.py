"""GPUDirect between machines with eight GPUs: what a machine starts before its container, and what that one gets. Pure.

A3 High (`a3-highgpu-8g`) has TCPX, A3 Mega (`a3-megagpu-8g`) TCPXO: a plugin of NCCL, and a daemon on each machine
that receives into the GPUs' memory. A3 Ultra (`a3-ultragpu-8g`) and A4 (`a4-highgpu-8g`) have RDMA cards, which NCCL's
plugin gIB reads from itself.

Sources: Google, «Maximize GPU network bandwidth» for A3 High and A3 Mega machines; GoogleCloudPlatform,
container-engine-accelerators, gpudirect-tcpx, gpudirect-tcpxo and gpudirect-rdma (images of November 2026, options,
variables); Google, «Run NCCL on Compute Engine instances» of 2026-04-06 (gIB: its folder, its script, its libraries),
«RDMA network profiles» and «Create an A4 or A3 Ultra instance» (two gVNIC cards, eight of RDMA).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tonnage.values import dataclass

REGISTRY: Final = "us-docker.pkg.dev/gce-ai-infra"
METADATA: Final = "http://metadata.google.internal/computeMetadata/v1/instance"
VARIABLES: Final = "/opt/tonnage/nccl.env"  # of the container, NAME=VALUE each
DAEMON: Final = "tonnage-receive"
READY: Final = "Buffer manager initialization completed"  # what TCPXO's daemon says after about 30 s
READY_S: Final = 180
SETTLE_S: Final = 10  # TCPX's daemon says nothing that is documented
APERTURES: Final = "/dev/aperture_devices"
TCPXO_CARD: Final = ("0x1ae0", "0x0084")  # PCI vendor and device of the cards that TCPXO reads from
# Processors of a3-highgpu-8g beside each card, to send and to receive: pairs of cards share a NUMA node.
SENDS: Final = ("8-21,112-125", "8-21,112-125", "60-73,164-177", "60-73,164-177")
RECEIVES: Final = ("22-35,126-139", "22-35,126-139", "74-87,178-191", "74-87,178-191")


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUDirect:
    """One kind of it."""

    name: str
    cards: int  # beside the first, each in a network of its own
    plugin: str  # image that lays NCCL and its plugin down
    daemon: str | None  # image of the receiving daemon; None: the plugin needs none
    libraries: str  # where the container has them
    folders: tuple[str, ...] = ()  # of the machine that the container needs too
    laid_in: str | None = None  # folder of the machine that the container sees as `seen_as`
    seen_as: str | None = None
    profile: str | None = None  # script that the container reads its variables from
    nic: Literal["GVNIC", "MRDMA"] = "GVNIC"  # of the cards
    devices: tuple[str, ...] = ()  # of the machine that the container gets


TCPX: Final = GPUDirect(
    name="GPUDirect-TCPX", cards=4, libraries="/var/lib/tcpx/lib64", folders=("/run/tcpx",),
    plugin=f"{REGISTRY}/gpudirect-tcpx/nccl-plugin-gpudirecttcpx-dev:v3.1.9",
    daemon=f"{REGISTRY}/gpudirect-tcpx/tcpgpudmarxd-dev:v2.0.12",
)  # fmt: skip
TCPXO: Final = GPUDirect(
    name="GPUDirect-TCPXO", cards=8, libraries="/var/lib/tcpxo/lib64", folders=(APERTURES,),
    plugin=f"{REGISTRY}/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.15",
    daemon=f"{REGISTRY}/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21",
)  # fmt: skip
GIB: Final = GPUDirect(
    name="GPUDirect RDMA", cards=8, nic="MRDMA", daemon=None, plugin=f"{REGISTRY}/gpudirect-gib/nccl-plugin-gib:v1.0.6",
    laid_in="/var/lib/gib", seen_as="/usr/local/gib", libraries="/usr/local/gib/lib64",
    profile="/usr/local/gib/scripts/set_nccl_env.sh", devices=("/dev/infiniband",),
)  # fmt: skip
OF_TYPES: Final[Mapping[str, GPUDirect]] = {
    "a3-highgpu-8g": TCPX, "a3-megagpu-8g": TCPXO, "a3-ultragpu-8g": GIB, "a4-highgpu-8g": GIB,
}  # fmt: skip


def machine_lines(kind: GPUDirect, *, plugin: str, daemon: str | None) -> tuple[str, ...]:
    """Lines of bash that a machine runs, as root, before its container; they end it where the daemon does not work.

    What the cards are called differs with the image: each is found by its address, which the metadata service has.
    """
    if daemon is None:
        return _rdma_lines(kind, plugin)
    install = f"docker run --rm --network host --volume /var/lib:/var/lib {plugin} install --install-nccl"
    begun = f"docker rm --force {DAEMON} >/dev/null 2>&1 || true"
    own = _tcpx_lines(daemon) if kind is TCPX else _tcpxo_lines(daemon)
    numbers = " ".join(str(number) for number in range(1, kind.cards + 1))
    return (
        _FIND_CARD,
        f'first="$(card 0)"; cards=(); for number in {numbers}; do one="$(card $number)"; cards+=("$one"); done',
        "iptables -I INPUT -p tcp -m tcp -j ACCEPT",  # Container-Optimized OS lets nothing in
        install, begun, *own,
    )  # fmt: skip


_FIND_CARD: Final = (
    f'card() {{ local mac at; mac="$(curl -sf -H Metadata-Flavor:Google {METADATA}/network-interfaces/$1/mac)"; '
    'at="$(grep -ilx "${mac:-none}" /sys/class/net/*/address | head -n 1)"; '
    '[ -n "$at" ] || { echo "this machine has no card $1" >&2; return 1; }; basename "$(dirname "$at")"; }'
)


def _rdma_lines(kind: GPUDirect, plugin: str) -> tuple[str, ...]:
    """The plugin is laid down; the container reads its variables from the plugin's own script."""
    device, folder = kind.devices[0], kind.laid_in
    lacks = f"this machine has no {device}: its boot image has no driver of RDMA cards"
    script = f"{folder}/scripts/{(kind.profile or '').rpartition('/')[2]}"
    return (
        _FIND_CARD,
        'first="$(card 0)"',
        f'[ -d {device} ] || {{ echo "{lacks}" >&2; exit 1; }}',
        "for one in /proc/sys/net/ipv4/conf/gpu*rdma*/log_martians; do "
        'if [ -e "$one" ]; then echo 0 > "$one"; fi; done',
        "docker run --rm --network host --privileged --volume /var/lib:/var/lib "
        f"--entrypoint /scripts/container_entry.sh {plugin} install --install-nccl",
        f'[ -e {script} ] || {{ echo "{plugin} has not laid {script} down" >&2; exit 1; }}',
        f'echo "NCCL_SOCKET_IFNAME=$first" > {VARIABLES}',
    )  # fmt: skip


def _tcpx_lines(daemon: str) -> tuple[str, ...]:
    variables = {
        "NCCL_SOCKET_IFNAME": "$first", "NCCL_GPUDIRECTTCPX_CTRL_DEV": "$first",
        "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": ",".join(f"${{cards[{at}]}}" for at in range(len(SENDS))),
        "NCCL_GPUDIRECTTCPX_TX_BINDINGS": ";".join(f"${{cards[{at}]}}:{one}" for at, one in enumerate(SENDS)),
        "NCCL_GPUDIRECTTCPX_RX_BINDINGS": ";".join(f"${{cards[{at}]}}:{one}" for at, one in enumerate(RECEIVES)),
        "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": "/run/tcpx",
        "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "50000", "NCCL_GPUDIRECTTCPX_FORCE_ACK": "0",
        "NCCL_CROSS_NIC": "0", "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_NSOCKS_PERTHREAD": "4",
        "NCCL_SOCKET_NTHREADS": "1", "NCCL_NET_GDR_LEVEL": "PIX", "NCCL_P2P_PXN_LEVEL": "0",
        "NCCL_DYNAMIC_CHUNK_SIZE": "524288", "NCCL_P2P_NET_CHUNKSIZE": "524288", "NCCL_P2P_PCI_CHUNKSIZE": "524288",
        "NCCL_P2P_NVL_CHUNKSIZE": "1048576", "NCCL_BUFFSIZE": "4194304",
    }  # fmt: skip
    text = "\\n".join(f"{name}={value}" for name, value in variables.items())
    return (
        "mkdir -p /run/tcpx",
        f"docker run --detach --name {DAEMON} --network host --cap-add NET_ADMIN --gpus all "
        "--volume /run/tcpx:/run/tcpx "
        f"--entrypoint /tcpgpudmarxd/build/app/tcpgpudmarxd {daemon} --gpu_nic_preset a3vm --gpu_shmem_type fd "
        '--uds_path /run/tcpx --setup_param "--verbose 128 2 0"',
        f"sleep {SETTLE_S}",
        f'[ "$(docker inspect --format "{{{{.State.Running}}}}" {DAEMON})" = true ] || {_given_up("TCPX")}',
        f'printf "{text}\\n" > {VARIABLES}',
    )


def _tcpxo_lines(daemon: str) -> tuple[str, ...]:
    """Google's own profile has the variables; names of cards and the place of their memory are the machine's."""
    vendor, device = TCPXO_CARD
    card = (
        f'[ "$(cat $one/vendor)" = {vendor} ] && [ "$(cat $one/device)" = {device} ] || continue; '
        f'at={APERTURES}/$(basename $one); mkdir -p $at; mountpoint -q $at || mount --bind "$(readlink -f $one)" $at'
    )
    own = (
        'NCCL_SOCKET_IFNAME="$first"; NCCL_FASTRAK_CTRL_DEV="$first"; '
        'NCCL_FASTRAK_IFNAME="$(IFS=,; echo "${cards[*]}")"; '
        f"NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY={APERTURES}"
    )
    profile = f"NCCL_LIB_DIR={TCPXO.libraries}; . {TCPXO.libraries}/nccl-env-profile.sh"
    return (
        "modprobe import-helper",
        f"mkdir -p {APERTURES}; for one in /sys/bus/pci/devices/*; do {card}; done",
        f"docker run --detach --name {DAEMON} --network host --cap-add NET_ADMIN --privileged --gpus all "
        "--volume /dev/dmabuf_import_helper:/dev/dmabuf_import_helper --env LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu "
        f"{daemon} --num_hops=2",
        f"for _ in $(seq {READY_S}); do docker logs {DAEMON} 2>&1 | grep -q '{READY}' && break; sleep 1; done",
        f"docker logs {DAEMON} 2>&1 | grep -q '{READY}' || {_given_up('TCPXO')}",
        f"( set +u -a; {profile}; {own}; env | grep '^NCCL_' > {VARIABLES} )",
    )


def _given_up(name: str) -> str:
    return f'{{ docker logs {DAEMON} 2>&1 | tail -n 20; echo "the daemon of GPUDirect-{name} does not work"; exit 1; }}'
