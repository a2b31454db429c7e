"""One address for own models and token APIs: routes, budgets that hold to the cent, fallbacks, a cache."""
