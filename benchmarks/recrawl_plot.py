"""The recrawl benchmark as a picture: how fresh each policy keeps products, and how soon it finds a change."""

from pathlib import Path

from benchmarks.recrawl import OURS, POLICIES, Recrawl


def draw(recrawl: Recrawl, output: Path) -> None:
    """A group of bars for each budget, a bar for each policy; above freshness, below the median delay."""
    # Half a second to import, which the other benchmarks do without; and a backend without a screen.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    budgets = list(recrawl.usual)
    figure = Figure(figsize=(11, 8), layout="constrained")
    fresh, delay = figure.subplots(2, 1, sharex=True)
    width = 0.8 / len(POLICIES)
    for number, name in enumerate(POLICIES):
        means = [recrawl.mean(budget, name) for budget in budgets]
        places = [group + (number - len(POLICIES) / 2) * width for group in range(len(budgets))]
        colour = "black" if name == OURS else f"C{number}"
        fresh.bar(places, [mean.freshness for mean in means], width, align="edge", color=colour, label=name)
        delay.bar(places, [mean.delay_p50 for mean in means], width, align="edge", color=colour)
    fresh.set_ylabel("share of products that are fresh")
    fresh.set_ylim(0.0, 1.0)
    delay.set_ylabel("median hours until a change is found")
    delay.set_yscale("log")
    delay.set_xticks(range(len(budgets)), [budget.name for budget in budgets])
    delay.set_xlabel("requests per product, and the maximum age")
    for axes in (fresh, delay):
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    figure.legend(loc="outside right upper", fontsize="small")
    output.parent.mkdir(parents=True, exist_ok=True)
    # Texts as texts, which can be searched.
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(output)
