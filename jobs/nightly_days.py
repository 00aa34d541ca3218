"""Write the patients of a day, 1 to 3, of the embedded diabetes data: python nightly_days.py DAY.

On the third day blood pressure comes in kilopascals, where it was millimetres of mercury before.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from distfms.data.files.builtin import builtin_table

day = int(sys.argv[1])
patients = builtin_table("diabetes")
patients = patients.take(np.random.default_rng(0).permutation(len(patients)))
size = len(patients) // 3
table = patients.slice((day - 1) * size, size)
if day == 3:
    place = table.column_names.index("bp")
    table = table.set_column(place, "bp", pc.divide(table["bp"], 7.50062))
folder = Path("days")
folder.mkdir(exist_ok=True)
pq.write_table(table, folder / f"2026-03-0{day}.parquet", row_group_size=40)
print(f"{len(table)} patients in {folder}/2026-03-0{day}.parquet")
