"""Every item by its name, in the order of the report."""

from lab.reproduction import (
    dlpm_fig7,
    dlpm_fig7_variations,
    dlpm_offered,
    dlpm_quanta,
    dlpm_views,
    fairserve,
    fairserve_case,
    fairserve_variations,
    vtc_ablation,
    vtc_measured,
    vtc_overload_tables,
    vtc_real,
    vtc_synthetic,
    vtc_tables,
)
from lab.reproduction.item import Item

MODULES = (
    vtc_measured,
    vtc_synthetic,
    vtc_real,
    vtc_tables,
    vtc_ablation,
    vtc_overload_tables,
    dlpm_quanta,
    dlpm_fig7,
    dlpm_fig7_variations,
    dlpm_views,
    dlpm_offered,
    fairserve,
    fairserve_case,
    fairserve_variations,
)
ITEMS: dict[str, Item] = {item.name: item for module in MODULES for item in module.ITEMS}
