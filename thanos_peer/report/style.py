"""How a report looks: one column on a phone, two on a desk, in light and in dark."""

from thanos_peer.plots import DARK, LIGHT

STYLE = f"""
:root {{
  color-scheme: light dark;
  --ink: {LIGHT.ink}; --quiet: #59616b; --page: #f4f6f8; --card: {LIGHT.paper}; --line: {LIGHT.faint};
  --accent: {LIGHT.curves[0]}; --warn: #fff4d6; --warn-line: #d9a400;
}}
@media (prefers-color-scheme: dark) {{
  :root {{
    --ink: {DARK.ink}; --quiet: #a3adb9; --page: #0f1318; --card: {DARK.paper}; --line: {DARK.faint};
    --accent: {DARK.curves[0]}; --warn: #33290c; --warn-line: #b58a00;
  }}
}}
* {{ box-sizing: border-box; }}
body {{
  margin: 0 auto; padding: 1rem; max-width: 70rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere;
}}
h1 {{ margin: 0; font-size: 1.9rem; line-height: 1.2; }}
h2 {{ margin: 2.2rem 0 .6rem; font-size: 1.25rem; }}
p {{ margin: .4rem 0; max-width: 46rem; }}
.quiet, figcaption {{ color: var(--quiet); font-size: .9rem; }}
.lead {{ font-size: 1.1rem; }}
nav {{ display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin-top: .8rem; }}
nav a {{ color: var(--accent); padding: .3rem 0; }}
.grid {{ display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 27rem), 1fr)); }}
.grid > * {{ min-width: 0; max-width: 36rem; }}
figure, .card {{
  margin: 0; padding: .7rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
}}
.card {{ overflow-x: auto; align-self: start; }}
figure {{ align-self: start; }}
figure img {{ display: block; width: 100%; height: auto; }}
.missing {{
  margin: 1rem 0; padding: .5rem .9rem; background: var(--warn); border-left: .3rem solid var(--warn-line);
}}
.missing ul {{ margin: .2rem 0; padding-left: 1.2rem; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }}
tr:last-child > * {{ border-bottom: 0; }}
th {{ font-weight: 600; }}
tbody th {{ font-weight: 400; color: var(--quiet); width: 40%; min-width: 6rem; }}
.numbers td, .numbers thead th:not(:first-child) {{ text-align: right; white-space: nowrap; }}
summary {{ cursor: pointer; padding: .3rem 0; }}
footer {{ margin-top: 2.5rem; }}
@media print {{ figure, .card {{ break-inside: avoid; }} }}
"""
