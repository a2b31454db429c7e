"""The controls that `tonnage compliance` names, and what each asks for.

Read on 2026-11-27 in public texts: ISO/IEC 27001:2022, Annex A, by the titles that statements of applicability list
(microlise.com publishes one); AICPA, Trust Services Criteria (2017, points of focus 2022), as public control catalogs
quote them (the Wazuh app's TSC requirements, for one), here in our own words; Regulation (EU) 2016/679, Articles 5, 30
and 32. The standards themselves are sold, and were not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

CONTROLS: Final[dict[str, str]] = {
    "SOC 2 A1.2": "data is backed up, and can be recovered",
    "SOC 2 A1.3": "recovery is tested",
    "SOC 2 C1.2": "confidential information is disposed of",
    "SOC 2 CC6.1": "logical access to protected information is secured",
    "SOC 2 CC6.3": "access follows roles and least privilege, and is removed when it is no longer needed",
    "SOC 2 CC6.7": "information is protected on its way",
    "SOC 2 CC7.1": "new vulnerabilities and changed configurations are found",
    "SOC 2 CC7.2": "components are monitored for anomalies",
    "ISO 27001 A.5.15": "Access control",
    "ISO 27001 A.5.17": "Authentication information",
    "ISO 27001 A.5.18": "Access rights",
    "ISO 27001 A.5.34": "Privacy and protection of PII",
    "ISO 27001 A.8.2": "Privileged access rights",
    "ISO 27001 A.8.3": "Information access restriction",
    "ISO 27001 A.8.5": "Secure authentication",
    "ISO 27001 A.8.8": "Management of technical vulnerabilities",
    "ISO 27001 A.8.10": "Information deletion",
    "ISO 27001 A.8.13": "Information backup",
    "ISO 27001 A.8.15": "Logging",
    "ISO 27001 A.8.16": "Monitoring activities",
    "ISO 27001 A.8.24": "Use of cryptography",
    "GDPR Art. 5(1)(e)": "personal data is kept no longer than needed",
    "GDPR Art. 5(2)": "who processes personal data can show how",
    "GDPR Art. 30": "records of processing",
    "GDPR Art. 32": "security of processing",
    "GDPR Art. 32(1)(a)": "pseudonymisation and encryption",
    "GDPR Art. 32(1)(c)": "data can be restored in time",
    "GDPR Art. 32(1)(d)": "measures are tested regularly",
}


def each_control(named: str) -> Iterator[str]:
    """The keys of `CONTROLS` in the words of an answer.

    >>> list(each_control("ISO 27001 A.5.15, A.8.2"))
    ['ISO 27001 A.5.15', 'ISO 27001 A.8.2']
    """
    first, *others = named.split(", ")
    yield first
    standard = first.rpartition(" ")[0]
    yield from (f"{standard} {one}" for one in others)
