"""The help pages of the commands on files of data."""

__all__ = ["DATA", "DATA_COMMANDS", "DATA_FLAGS", "DATA_PAGES"]

DATA_COMMANDS = {
    "data head": "print the first records of files",
    "data info": "count records, columns and tasks of files",
    "data convert": "write records as RecordIO or Parquet",
}
DATA_FLAGS = {
    "data head": ("--data_reader_params", "--records"),
    "data info": ("--data_reader_params", "--minibatch_size", "--num_minibatches_per_task"),
    "data convert": ("--data_reader_params",),
}

_READ = """\
  PATH                     a file, a directory, a pattern, or several of
                           them with commas between                    required
  --data_reader_params K=V;K=V   how it is read, as for edlz train
"""
_FORMATS = """\

Formats, by the names of files; reader_type= names another one:
  RecordIO    *.recordio, and all other names
  CSV         *.csv *.tsv, also .gz; needs pip install 'edlz[data]'
              sep=,  quote="  header=yes  columns=a,b  types=a:float64
              null_values=,NA  defaults=a:-1
  Parquet     *.parquet; needs pip install 'edlz[data]'
              columns=a,b  defaults=a:-1
  TFRecord    *.tfrecord, also .gz
  Text        *.txt *.jsonl, also .gz: a line is a record

Paths may be addresses, as s3://bucket/rows/: whatever fsspec opens.
"""

DATA = f"""\
Usage: edlz data COMMAND
Files of data: what is in them, and other files made of them.

  edlz data head     {DATA_COMMANDS["data head"]}
  edlz data info     {DATA_COMMANDS["data info"]}
  edlz data convert  {DATA_COMMANDS["data convert"]}
{_FORMATS}"""

DATA_PAGES = {
    "head": f"""\
Usage: edlz data head PATH [flags]
Print the first records: a JSON object each, or the bytes as text.

{_READ}\
  --records N              how many                                        [5]
{_FORMATS}""",
    "info": f"""\
Usage: edlz data info PATH [flags]
Print what there is: records, columns and their types, tasks.

{_READ}\
  --minibatch_size N       records in one gradient                        [64]
  --num_minibatches_per_task N   minibatches in one task                   [8]
{_FORMATS}""",
    "convert": f"""\
Usage: edlz data convert PATH FILE [flags]
Write all records into one file, which is there as a whole or not at all.
Records with columns become a tf.train.Example each in RecordIO.

{_READ}\
  FILE                     x.parquet: Parquet; else RecordIO           required
{_FORMATS}""",
}
