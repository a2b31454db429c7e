"""Models of tables: boosted trees of XGBoost and LightGBM, the networks of runs."""
