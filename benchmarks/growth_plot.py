"""The growth benchmark as a picture: how many times as long each operation takes while more and more is stored."""

from pathlib import Path

from benchmarks.growth import MOST, Growth


def draw(growth: Growth, output: Path) -> None:
    """One line per operation over the number of stored products, and the line that none may cross."""
    # Half a second to import, which the other benchmarks do without; and a backend without a screen.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    sizes = growth.plan.sizes
    figure = Figure(figsize=(11, 7), layout="constrained")
    axes = figure.add_subplot()
    for operation in sorted(growth.seconds, key=lambda one: -growth.ratio(one, sizes[-1])):
        axes.plot(sizes, [growth.ratio(operation, size) for size in sizes], marker="o", label=operation)
    axes.axhline(MOST, color="black", linestyle="--", label=f"target: {MOST:g}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("stored products (tasks: ten times as many)")
    axes.set_ylabel("time, in times of that with the least stored")
    axes.grid(which="both", alpha=0.3)
    figure.legend(loc="outside right upper", fontsize="small")
    output.parent.mkdir(parents=True, exist_ok=True)
    # Texts as texts, which can be searched.
    with rc_context({"svg.fonttype": "none"}):
        figure.savefig(output)
