"""Models and data sets brought here: parallel, resumable, verified, cached, to one target or several."""

from tonnage.fetching.fetching import ProgressWatcher, fetch, verify
from tonnage.fetching.results import Fetched, FetchRequest
from tonnage.http.downloaded import FetchedFile, VerifiedFile

__all__ = ["FetchRequest", "Fetched", "FetchedFile", "ProgressWatcher", "VerifiedFile", "fetch", "verify"]
