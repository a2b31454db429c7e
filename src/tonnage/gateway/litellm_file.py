"""LiteLLM's `config.yaml` -> a gateway file as a plain mapping, and notes of what it cannot say.

Source: LiteLLM's documentation of the proxy's config file and of its providers' addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

import yaml

from tonnage.errors import InputError
from tonnage.values import dataclass

USD_PER_MILLION: Final = 1e6  # LiteLLM states prices per token
POLICIES: Final = {"latency-based-routing": "fastest", "cost-based-routing": "cheapest", "simple-shuffle": "weighted"}
PERIODS: Final = {"1d": "day", "24h": "day", "30d": "month", "1mo": "month"}
PRICES: Final = {
    "input_cost_per_token": "input_usd_per_million", "output_cost_per_token": "output_usd_per_million",
    "cache_read_input_token_cost": "cached_input_usd_per_million",
    "cache_creation_input_token_cost": "cache_write_usd_per_million",
}  # fmt: skip
LIMITS: Final = {"rpm": "requests_per_minute", "tpm": "tokens_per_minute", "max_parallel_requests": "at_once"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedProvider:
    """Where a provider answers and how it is signed in to. `url` None: each account has its own address."""

    url: str | None
    dialect: str = "openai"
    sign_in: str = "bearer"
    key: str | None = None


PROVIDERS: Final[dict[str, ListedProvider]] = {
    "openai": ListedProvider(url="https://api.openai.com/v1", key="OPENAI_API_KEY"),
    "anthropic": ListedProvider(
        url="https://api.anthropic.com/v1", dialect="anthropic", sign_in="x-api-key", key="ANTHROPIC_API_KEY"
    ),
    "azure": ListedProvider(url=None, sign_in="api-key", key="AZURE_API_KEY"),
    "bedrock": ListedProvider(url=None, dialect="converse", sign_in="aws"),
    "databricks": ListedProvider(url=None, key="DATABRICKS_API_KEY"),
    "gemini": ListedProvider(url="https://generativelanguage.googleapis.com/v1beta/openai", key="GEMINI_API_KEY"),
    "vertex_ai": ListedProvider(url=None, sign_in="google"),
    "groq": ListedProvider(url="https://api.groq.com/openai/v1", key="GROQ_API_KEY"),
    "mistral": ListedProvider(url="https://api.mistral.ai/v1", key="MISTRAL_API_KEY"),
    "deepseek": ListedProvider(url="https://api.deepseek.com/v1", key="DEEPSEEK_API_KEY"),
    "together_ai": ListedProvider(url="https://api.together.xyz/v1", key="TOGETHERAI_API_KEY"),
    "fireworks_ai": ListedProvider(url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_AI_API_KEY"),
    "openrouter": ListedProvider(url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "xai": ListedProvider(url="https://api.x.ai/v1", key="XAI_API_KEY"),
    "ollama": ListedProvider(url="http://localhost:11434/v1", sign_in="none"),
    "ollama_chat": ListedProvider(url="http://localhost:11434/v1", sign_in="none"),
    "hosted_vllm": ListedProvider(url=None, sign_in="none"),
    "text-completion-openai": ListedProvider(url="https://api.openai.com/v1", key="OPENAI_API_KEY"),
}


def read_litellm(text: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The gateway file, and notes. A key that is in the text is in neither. Raises InputError for no such file."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"the file is no YAML: {error}", hint="the file that `litellm --config` takes") from error
    if not isinstance(said, Mapping) or not isinstance(said.get("model_list"), list):
        raise InputError("the file has no `model_list`", hint="the file that `litellm --config` takes")
    return _LitellmReader(said).file()


class _LitellmReader:
    """`notes` grows with what has no counterpart."""

    def __init__(self, said: Mapping[str, Any]) -> None:
        self.said = said
        self.notes: list[str] = []
        self.deployments: dict[str, dict[str, Any]] = {}
        self.routes: dict[str, dict[str, Any]] = {}
        self.weights: dict[str, float] = {}

    def file(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        settings, router, general = (
            dict(self.said.get(name) or {}) for name in ("litellm_settings", "router_settings", "general_settings")
        )
        timeout = settings.pop("request_timeout", router.pop("timeout", None))
        for index, entry in enumerate(self.said["model_list"]):
            self._entry(index, entry, timeout)
        self._policies(router)
        self._retries(router, settings)
        self._cache(settings)
        self._aliases(router)
        self._fallbacks([*(settings.pop("fallbacks", None) or []), *(router.pop("fallbacks", None) or [])])
        made: dict[str, Any] = {"deployments": self.deployments, "routes": self.routes}
        made.update(self._money(settings))
        made.update(self._keys(general))
        for where, left in (("litellm_settings", settings), ("router_settings", router), ("general_settings", general)):
            self._left(where, left)
        self._left("the file", {name: 1 for name in self.said if name not in _READ})
        return made, tuple(self.notes)

    # deployments

    def _entry(self, index: int, entry: Any, timeout: Any) -> None:
        where = f"model_list[{index}]"
        asked = entry.get("model_name") if isinstance(entry, Mapping) else None
        params = dict(entry.get("litellm_params") or {}) if isinstance(entry, Mapping) else {}
        model = params.pop("model", None)
        if not isinstance(asked, str) or not isinstance(model, str):
            raise InputError(f"{where} has no `model_name` or no `litellm_params.model`", hint="LiteLLM needs both")
        if "*" in asked or "*" in model:
            self.notes.append(f"{where}: `{asked}` stands for any model; name each model that is meant")
            return
        info = dict(entry.get("model_info") or {})
        params.update({name: entry[name] for name in LIMITS if name in entry})
        made = self._deployment(where, model, params)
        if made is None:
            return
        price = _price({**info, **params})
        if price:
            made["price"] = price
        else:
            self.notes.append(f"{where}: no price is stated; add `price:`, `catalog_price:` or `own:` to it")
        self._times(where, made, params, timeout)
        name = self._name(asked, model)
        self.deployments[name] = made
        self.weights[name] = float(params.pop("weight", None) or 1.0)
        if _plain(asked) != asked and _plain(asked) not in self.routes:
            self.notes.append(f"{where}: clients ask for `{_plain(asked)}` instead of `{asked}`")
        self.routes.setdefault(_plain(asked), {"deployments": []})["deployments"].append(name)
        for known in (*PRICES, *LIMITS):
            params.pop(known, None)
        self._left(f"{where}.litellm_params", params)

    def _name(self, asked: str, model: str) -> str:
        name, number = _plain(model), 2
        if len([one for one in self.said["model_list"] if one.get("model_name") == asked]) == 1:
            name = _plain(asked)
        base = name
        while name in self.deployments:
            name, number = f"{base}-{number}", number + 1
        return name

    def _deployment(self, where: str, model: str, params: dict[str, Any]) -> dict[str, Any] | None:
        prefix, slash, rest = model.partition("/")
        provider = PROVIDERS.get(prefix) if slash else PROVIDERS["openai"]
        base = params.pop("api_base", None) or params.pop("base_url", None)
        if provider is None:
            if base is None:
                self.notes.append(f"{where}: `{model}` is of a provider without a known address; give it an `api_base`")
                return None
            provider = ListedProvider(url=None, key=f"{re.sub(r'[^A-Z0-9]', '_', prefix.upper())}_API_KEY")
        url = self._url(where, prefix, provider, base, params)
        if url is None:
            return None
        name = rest if slash else model
        if prefix == "bedrock":
            name = re.sub(r"^(converse|invoke)/", "", name)
        made: dict[str, Any] = {"url": url, "model": f"google/{name}" if prefix == "vertex_ai" else name}
        if provider.dialect != "openai":
            made["dialect"] = provider.dialect
        sign_in = self._sign_in(where, provider, params)
        if sign_in is not None:
            made["sign_in"] = sign_in
        made.update({ours: params[theirs] for theirs, ours in LIMITS.items() if params.get(theirs)})
        return made

    def _url(self, where: str, prefix: str, provider: ListedProvider, base: Any, params: dict[str, Any]) -> str | None:
        stated = _reference(base) if isinstance(base, str) else None
        if stated is not None:
            self.notes.append(f"{where}: its address is {stated}; write the address itself to `url:`")
            return None
        if isinstance(base, str):
            root = base.rstrip("/")
            if prefix == "azure":
                params.pop("api_version", None)  # Azure's v1 API has no versions by date
                return root if root.endswith("/openai/v1") else f"{root}/openai/v1"
            return root
        if prefix == "bedrock":
            region = params.get("aws_region_name")
            if isinstance(region, str) and _reference(region) is None:
                return f"https://bedrock-runtime.{region}.amazonaws.com"
            self.notes.append(f"{where}: the region is not stated; write it to `aws_region_name`")
            return None
        if prefix == "vertex_ai":
            project, place = params.pop("vertex_project", None), params.pop("vertex_location", None)
            if all(isinstance(one, str) and _reference(one) is None for one in (project, place)):
                root = f"https://{place}-aiplatform.googleapis.com/v1/projects/{project}"
                return f"{root}/locations/{place}/endpoints/openapi"
            self.notes.append(f"{where}: `vertex_project` and `vertex_location` must stand in the file")
            return None
        if provider.url is None:
            self.notes.append(f"{where}: has no `api_base`, and each account there has an address of its own")
        return provider.url

    def _sign_in(self, where: str, provider: ListedProvider, params: dict[str, Any]) -> dict[str, Any] | None:
        key = params.pop("api_key", None)
        if provider.sign_in == "aws":
            found = {"kind": "aws"}
            for theirs, ours in (("aws_region_name", "region"), ("aws_profile_name", "profile")):
                value = params.pop(theirs, None)
                if isinstance(value, str):
                    found[ours] = value
            for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token"):
                if params.pop(name, None) is not None:
                    self.notes.append(f"{where}: {name} is read from the environment or a profile, not from the file")
            return found
        if provider.sign_in == "google":
            if params.pop("vertex_credentials", None) is not None:
                self.notes.append(f"{where}: credentials of Google are those of GOOGLE_APPLICATION_CREDENTIALS")
            return {"kind": "google"}
        if key is None and (provider.sign_in == "none" or provider.key is None):
            return None
        kind = "bearer" if provider.sign_in == "none" else provider.sign_in
        return {"kind": kind, "key": self._key(where, "api_key", key, provider.key or "API_KEY")}

    def _key(self, where: str, what: str, key: Any, name: str) -> str:
        reference = _reference(key) if isinstance(key, str) else None
        if reference is not None:
            return reference
        if key is not None:
            self.notes.append(f"{where}: {what} stands in the file itself; export it as {name}")
        return f"env:{name}"

    def _times(self, where: str, made: dict[str, Any], params: dict[str, Any], default: Any) -> None:
        total, first = params.pop("timeout", default), params.pop("stream_timeout", None)
        if isinstance(total, int | float):
            made["timeouts"] = {"total": f"{total:g}s"}
        elif total is not None:
            self.notes.append(f"{where}: the timeout is no number")
        if isinstance(first, int | float):
            made.setdefault("timeouts", {})["first_byte"] = f"{first:g}s"

    # routes

    def _policies(self, router: dict[str, Any]) -> None:
        strategy = router.pop("routing_strategy", "simple-shuffle")
        policy = POLICIES.get(strategy)
        if policy is None:
            self.notes.append(f"router_settings.routing_strategy: `{strategy}` has no counterpart; it is `fastest`")
            policy = "fastest"
        for route in self.routes.values():
            if len(route["deployments"]) > 1:
                route["policy"] = policy
                if policy == "weighted":
                    route["weights"] = {name: self.weights[name] for name in route["deployments"]}

    def _retries(self, router: dict[str, Any], settings: dict[str, Any]) -> None:
        mine, theirs = router.pop("num_retries", None), settings.pop("num_retries", None)
        retries = mine if mine is not None else theirs
        if isinstance(retries, int):
            for route in self.routes.values():
                route["retry"] = {"attempts": retries + 1}

    def _cache(self, settings: dict[str, Any]) -> None:
        params = dict(settings.pop("cache_params", None) or {})
        if not settings.pop("cache", False):
            return
        kind, ttl = params.pop("type", "local"), params.pop("ttl", None)
        if kind != "local":
            self.notes.append(f"litellm_settings.cache_params.type: `{kind}`; answers are kept in each worker's memory")
        for route in self.routes.values():
            route["cache"] = {"when": "always", **({"ttl": f"{ttl:g}s"} if isinstance(ttl, int | float) else {})}
        self._left("litellm_settings.cache_params", params)

    def _aliases(self, router: dict[str, Any]) -> None:
        for alias, group in (router.pop("model_group_alias", None) or {}).items():
            name = group.get("model") if isinstance(group, Mapping) else group
            if isinstance(name, str) and _plain(name) in self.routes:
                self.routes[_plain(str(alias))] = deepcopy(self.routes[_plain(name)])
            else:
                self.notes.append(f"router_settings.model_group_alias.{alias}: there is no model `{name}`")

    def _fallbacks(self, said: list[Any]) -> None:
        for pair in said:
            for group, others in pair.items() if isinstance(pair, Mapping) else ():
                listed = [others] if isinstance(others, str) else list(others or [])
                known = [_plain(one) for one in listed if isinstance(one, str) and _plain(one) in self.routes]
                if _plain(str(group)) not in self.routes or not known:
                    self.notes.append(f"fallbacks.{group}: names no model of the file")
                    continue
                self.routes[_plain(str(group))]["fallback"] = known[0]
                if len(listed) > 1:
                    self.notes.append(f"fallbacks.{group}: the first is taken; the next is the fallback of that one")

    # money and keys

    def _money(self, settings: dict[str, Any]) -> dict[str, Any]:
        usd, period = settings.pop("max_budget", None), settings.pop("budget_duration", None)
        if not isinstance(usd, int | float):
            return {}
        per = "ever" if period is None else PERIODS.get(str(period))
        if per is None:
            self.notes.append(f"litellm_settings.budget_duration: `{period}` has no counterpart; it is a month")
        return {"budgets": [{"of": "total", "usd": usd, "per": per or "month"}]}

    def _keys(self, general: dict[str, Any]) -> dict[str, Any]:
        key = general.pop("master_key", None)
        if general.pop("database_url", None) is not None:
            self.notes.append(
                "general_settings.database_url: keys in LiteLLM's database are not read; add them to `keys:`"
            )
        if key is None:
            return {}
        where = "general_settings"
        return {"keys": {"master": {"key": self._key(where, "master_key", key, "LITELLM_MASTER_KEY")}}}

    def _left(self, where: str, left: Mapping[str, Any]) -> None:
        self.notes += [f"{where}.{name}: has no counterpart" for name in left]


_READ: Final = ("model_list", "litellm_settings", "router_settings", "general_settings")


def _price(said: Mapping[str, Any]) -> dict[str, float]:
    """Dollars a million tokens; nothing unless both sides are stated."""
    found: dict[str, float] = {}
    for theirs, ours in PRICES.items():
        try:
            found[ours] = round(float(said[theirs]) * USD_PER_MILLION, 9)
        except (KeyError, TypeError, ValueError):
            continue
    return found if {"input_usd_per_million", "output_usd_per_million"} <= set(found) else {}


def _reference(value: str) -> str | None:
    """`os.environ/NAME` as `env:NAME`."""
    head, slash, name = value.partition("/")
    return f"env:{name}" if head == "os.environ" and slash and name else None


def _plain(name: str) -> str:
    """A name as the gateway file writes it: lower case, other signs than letters, digits, `_.-` as `-`."""
    return re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-_.")[:60] or "model"
