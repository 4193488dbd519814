"""The embedding tables of an export: their content, and looking rows up without edlz."""
