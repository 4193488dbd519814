"""What every format of data is read through: its protocol, records, parameters and paths."""
