"""Every item by its name, in the order of the report."""

from simulation.reproduction import vtc_measured
from simulation.reproduction.item import Item

ITEMS: dict[str, Item] = {item.name: item for module in (vtc_measured,) for item in module.ITEMS}
