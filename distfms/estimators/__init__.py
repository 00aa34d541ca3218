"""Jobs as scikit-learn estimators."""
