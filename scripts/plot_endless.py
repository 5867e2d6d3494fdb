#!/usr/bin/env python3
"""Draws docs/images/endless.png from what `bench/endless --out FILE` wrote. Needs matplotlib.

plot_endless.py BOOK ORIGINAL.tsv AUTO.tsv OUT.png: of BOOK (the stem of its file), the runs with
--positions original and with --positions auto.
"""

import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

COLOURS = {"streaming": "#1f77b4", "retention": "#2ca02c", "counter-causal-fast": "#d62728"}


def read(path, book):
    """NLL and tokens seen of each policy, a point at the middle of each window."""
    runs = {}
    with open(path, newline="") as file:
        for label, end, nll, control in csv.reader(file, delimiter="\t"):
            name, policy = label.split(", ")
            if name == book:
                runs.setdefault(policy, []).append((int(end), float(nll), control))
    return runs


def main():
    book, original, auto, out = sys.argv[1:]
    figure, axes = plt.subplots(figsize=(9, 4.2), dpi=110)
    for path, style, how in ((original, "--", "original"), (auto, "-", "auto")):
        for policy, points in read(path, book).items():
            if policy not in COLOURS:
                continue
            window = points[1][0] - points[0][0]
            axes.plot([(end - window / 2) / 1000 for end, _, _ in points],
                      [nll for _, nll, _ in points], style, color=COLOURS[policy],
                      label=f"{policy}, {how}", linewidth=1.6)
            controls = [(end - window / 2, float(c)) for end, _, c in points if c]
            axes.plot([end / 1000 for end, _ in controls], [c for _, c in controls], "o",
                      color=COLOURS[policy], markersize=6, markerfacecolor="none")
    axes.axvline(8.192, color="#888888", linewidth=0.8)
    axes.annotate("trained context", (8.6, 2.6), color="#555555", fontsize=9)
    axes.set_xlabel("tokens seen, thousands")
    axes.set_ylabel("mean NLL of a window, nats")
    axes.set_ylim(2.5, 8.8)
    axes.set_xlim(0, None)
    axes.legend(fontsize=8, ncol=2, loc="upper right")
    axes.set_title(f"{book}, J = 512, h = 128 (circles: fresh sessions at the same place)",
                   fontsize=10)
    figure.tight_layout()
    figure.savefig(out)


if __name__ == "__main__":
    main()
