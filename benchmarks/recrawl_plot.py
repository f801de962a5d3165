"""The recrawl benchmark as a picture: what each policy makes of each budget, measure by measure."""

from pathlib import Path

from benchmarks.recrawl import OURS, POLICIES, Recrawl

# By the name of the measure: what its axis says, and whether it spans orders of magnitude.
MEASURES = {
    "freshness": ("share of products that are fresh", False),
    "harmonic_staleness": ("harmonic staleness", False),
    "delay_p50": ("median hours until a change is found", True),
    "delay_p95": ("hours until 95 % of changes are found", True),
    "oldest_age": ("hours since the oldest fetch", True),
    "requests_per_change": ("requests for each change found", False),
}


def draw(recrawl: Recrawl, output: Path) -> None:
    """A row for each measure, a group of bars for each budget, a bar for each policy."""
    # Half a second to import, which the other benchmarks do without; and a backend without a screen.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    budgets = list(recrawl.usual)
    figure = Figure(figsize=(11, 3 * len(MEASURES)), layout="constrained")
    rows = figure.subplots(len(MEASURES), 1, sharex=True)
    width = 0.8 / len(POLICIES)
    for axes, (measure, (label, wide)) in zip(rows, MEASURES.items(), strict=True):
        for number, name in enumerate(POLICIES):
            means = [getattr(recrawl.mean(budget, name), measure) for budget in budgets]
            places = [group + (number - len(POLICIES) / 2) * width for group in range(len(budgets))]
            colour = "black" if name == OURS else f"C{number}"
            axes.bar(places, means, width, align="edge", color=colour, label=name if axes is rows[0] else None)
        axes.set_ylabel(label)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        if wide:
            axes.set_yscale("log")
    rows[-1].set_xticks(range(len(budgets)), [budget.name for budget in budgets])
    rows[-1].set_xlabel("requests per product, and the maximum age")
    figure.legend(loc="outside right upper", fontsize="small")
    output.parent.mkdir(parents=True, exist_ok=True)
    # Texts as texts, which can be searched.
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(output)
