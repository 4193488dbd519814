"""The data sets that can be converted: names alone, for help pages and completion."""

__all__ = ["DATASETS", "GENERATED", "IMAGES"]

IMAGES = ("mnist", "fashion_mnist")
GENERATED = "criteo-generated"
DATASETS = (*IMAGES, "adult", "movielens", "criteo", "heart", "iris", "frappe", "adult-csv", GENERATED)
