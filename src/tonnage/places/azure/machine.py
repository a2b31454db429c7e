"""The body of a virtual machine of Azure, and the scripts that it runs. Pure.

Sources: Azure's Compute REST API 2026-04-01 and its official Python models; «Use Azure Spot Virtual Machines»,
«Authenticate with an Azure container registry».
"""

from __future__ import annotations

import base64
from typing import Final

from tonnage.places.azure.place import AzurePlace
from tonnage.places.bucket.azure import MANAGEMENT
from tonnage.places.bucket.boot import POWER_OFF, first_script
from tonnage.places.bucket.cloud import Body, Work

API_VERSION: Final = "2026-04-01"  # of Microsoft.Compute: that of the recorded models
NETWORK_API: Final = "2022-11-01"  # of the card that is made with the machine
MOST_CUSTOM_DATA: Final = 65_535  # bytes, in base64
IDENTITY: Final = "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01"
ACR_USER: Final = "00000000-0000-0000-0000-000000000000"  # of a login with a token


def name_in(name: str, zone: str) -> str:
    """A machine's name in a zone: what a failed one of another zone leaves is not in its way.

    >>> name_in("t-first-0a1b2c3d-0123456789ab", "2")
    't-first-0a1b2c3d-0123456789ab-2'
    """
    return f"{name}-{zone}" if zone else name


def machine_of(place: AzurePlace, work: Work, zone: str, *, itself: str = "") -> Body:
    """The machine. Nothing reaches it; disk and card go with it; secrets are named alone.

    `itself`: shell for the machine's own path, where its name is not known before.
    """
    disk: Body = {
        "createOption": "FromImage", "deleteOption": "Delete", "diskSizeGB": place.disk_gib, "caching": "ReadWrite",
        "managedDisk": {"storageAccountType": place.disk_type},
    }  # fmt: skip
    if place.disk_encryption_set is not None:
        disk["managedDisk"]["diskEncryptionSet"] = {"id": place.disk_encryption_set}
    own = itself or f"{place.group}/providers/Microsoft.Compute/virtualMachines/{name_in(work.name, zone)}"
    script = first_script(place, work, login=login(place.image), end=end_script(own))
    key = {"path": "/home/tonnage/.ssh/authorized_keys", "keyData": place.ssh_public_key}
    properties: Body = {
        "hardwareProfile": {"vmSize": place.instance_type},
        "storageProfile": {"imageReference": _image(place.boot_image), "osDisk": disk},
        "osProfile": {
            "computerName": name_in(work.name, zone), "adminUsername": "tonnage",
            "customData": base64.b64encode(script.encode()).decode(), "allowExtensionOperations": False,
            "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": [key]}},
        },
        "networkProfile": {"networkApiVersion": NETWORK_API, "networkInterfaceConfigurations": [_card(place, work)]},
        "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        **_bought(place),
    }  # fmt: skip
    body: Body = {
        "location": place.region, "tags": {key: value[:256] for key, value in work.tags.items()},
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {place.identity: {}}},
        "properties": properties,
    }  # fmt: skip
    return {**body, "zones": [zone]} if zone else body


def _bought(place: AzurePlace) -> Body:
    """Spot: evicted is deleted, so that no disk is left; -1 is the price of on-demand."""
    if place.spot:
        price = -1 if place.most_usd_per_hour is None else place.most_usd_per_hour
        return {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": price}}
    if place.capacity_reservation is not None:
        return {"capacityReservation": {"capacityReservationGroup": {"id": place.capacity_reservation}}}
    return {}


def _card(place: AzurePlace, work: Work) -> Body:
    address: Body = {"primary": True, "subnet": {"id": place.subnet_id}}
    if place.public_address:
        address["publicIPAddressConfiguration"] = {
            "name": "out", "sku": {"name": "Standard"}, "properties": {"deleteOption": "Delete"}
        }  # fmt: skip
    return {
        "name": f"{work.name}-nic",
        "properties": {
            "primary": True, "deleteOption": "Delete",
            "ipConfigurations": [{"name": "first", "properties": address}],
        },
    }  # fmt: skip


def _image(text: str) -> Body:
    if text.startswith("/"):
        member = {"/Sha": "sharedGalleryImageId", "/Com": "communityGalleryImageId"}.get(text[:4], "id")
        return {member: text}
    return dict(zip(("publisher", "offer", "sku", "version"), text.split(":"), strict=True))


def _token(resource: str) -> str:
    """Shell: the identity's token for a service."""
    return f"$(curl -sf -H Metadata:true '{IDENTITY}&resource={resource}' | {_field('access_token')})"


def _field(name: str) -> str:
    return f"""sed -E 's/.*"{name}" *: *"([^"]+)".*/\\1/'"""


def login(image: str) -> tuple[str, ...]:
    """Lines that sign a machine in at Azure's registry, where the image is there; its identity is enough."""
    host = image.partition("/")[0]
    if not host.endswith(".azurecr.io"):
        return ()
    given = f"grant_type=access_token&service={host}&access_token={_token('https://management.azure.com/')}"
    exchange = f'curl -sf https://{host}/oauth2/exchange -d "{given}" | {_field("refresh_token")}'
    return (f"{exchange} | docker login -u {ACR_USER} --password-stdin {host}",)


def end_script(machine: str) -> str:
    """A machine whose work is done deletes itself, where its identity may; one whose work failed lets its capacity go
    and keeps its console. Else it is switched off, and billed until the client deletes it.
    """
    header = f'-H "Authorization: Bearer {_token("https://management.azure.com/")}"'
    version = f"api-version={API_VERSION}"
    return (
        f'MACHINE="{MANAGEMENT}{machine}"\n'
        'if [ "${EXIT_STATUS:-1}" = 0 ]; then\n'
        f'  curl -sf -X DELETE {header} "$MACHINE?{version}" && exit 0\n'
        "else\n"
        f"  curl -sf -X POST -d '' {header} \"$MACHINE/deallocate?{version}\" && exit 0\n"
        f"fi\n{POWER_OFF}"
    )
