#!/usr/bin/env python3
"""Writes stats.json: what SciPy, scikit-posthocs and NumPy say about some samples.

Run once in an environment with scipy, scikit-posthocs, statsmodels and numpy:
    python make.py ../../../../data/marenostrum4.csv > stats.json
scikit-posthocs reports no Z, so Z is worked out here from SciPy's ranks and checked against its p.
"""
import collections, csv, itertools, json, math, random, sys

import numpy as np
import scikit_posthocs as sp
from scipy import stats


def case(name, groups):
    groups = [[float(v) for v in g] for g in groups]
    flat = [v for g in groups for v in g]
    h, p = stats.kruskal(*groups)
    table = {a: sp.posthoc_dunn(groups, p_adjust=a).to_numpy() for a in (None, "bonferroni", "holm")}
    ranks, at, means = stats.rankdata(flat), 0, []
    for g in groups:
        means.append(ranks[at:at + len(g)].mean())
        at += len(g)
    n, ties = len(flat), sum(c**3 - c for c in collections.Counter(flat).values())
    pairs = []
    for a, b in itertools.combinations(range(len(groups)), 2):
        error = math.sqrt((n * (n + 1) / 12 - ties / (12 * (n - 1))) * (1 / len(groups[a]) + 1 / len(groups[b])))
        z = (means[a] - means[b]) / error
        assert abs(2 * stats.norm.sf(abs(z)) - table[None][a][b]) < 1e-12
        pairs.append({"a": a, "b": b, "z": z, "p": table[None][a][b],
                      "bonferroni": table["bonferroni"][a][b], "holm": table["holm"][a][b]})
    intervals = [stats.t.interval(0.95, len(g) - 1, np.mean(g), stats.sem(g)) for g in groups]
    return {"name": name, "groups": groups, "h": h, "p": p, "dunn": pairs,
            "mean": [float(np.mean(g)) for g in groups], "median": [float(np.median(g)) for g in groups],
            "q1": [float(np.quantile(g, 0.25)) for g in groups], "q90": [float(np.quantile(g, 0.9)) for g in groups],
            "t95": [[float(lo), float(hi)] for lo, hi in intervals]}


rng = random.Random(4)
cases = [
    case("two groups", [[1, 2, 3, 4, 5], [4, 5, 6, 7, 8]]),
    case("many ties", [[1, 1, 2, 2, 3], [2, 2, 3, 3, 3, 3], [1, 2, 3]]),
    case("far apart", [[i + 1000 * k for i in range(12)] for k in range(5)]),
    case("unequal sizes", [[rng.gauss(100 + 5 * k, 10) for _ in range(n)] for k, n in enumerate((3, 17, 5, 8))]),
    case("rounded", [[round(rng.gauss(50 + k, 3)) for _ in range(9)] for k in range(4)]),
]
rows = collections.OrderedDict()
for r in csv.DictReader(open(sys.argv[1])):
    rows.setdefault(r["scenario"], {}).setdefault(int(r["io_nodes"]), []).append(float(r["bandwidth_mbs"]))
for name in list(rows)[::19]:
    cases.append(case(name, [rows[name][k] for k in sorted(rows[name])]))
json.dump(cases, sys.stdout, indent=1)
print()
