"""Every item by its name, in the order of the report."""

from simulation.reproduction import dlpm_fig7, vtc_ablation, vtc_measured, vtc_real, vtc_synthetic
from simulation.reproduction.item import Item

MODULES = (vtc_measured, vtc_synthetic, vtc_real, vtc_ablation, dlpm_fig7)
ITEMS: dict[str, Item] = {item.name: item for module in MODULES for item in module.ITEMS}
