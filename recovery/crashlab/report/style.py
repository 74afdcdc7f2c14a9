"""How the page looks, and the little that moves on it: all of it in the head, nothing is fetched."""

from __future__ import annotations

from recovery.page.markup import Markup, joined, tag

_LIGHT = """
--paper:#f6f7f9;--card:#fff;--ink:#14181f;--soft:#59626f;--faint:#8b94a1;--line:#dfe3e9;--band:#f0f2f5;
--good:#12805c;--good-paper:#e6f5ee;--bad:#c8202f;--bad-paper:#fdebec;--warn:#8f5200;--warn-paper:#fff3d6;
--warn-line:#e5a83b;--stripe:rgba(229,168,59,.16);
--model:#3565d6;--kill:#8547c7;--errors:#cf5f14;--nested:#0f8a95;--rot:#a8527c;--cut:#56702b;--other:#6b7280;
--write:#3565d6;--sync:#12805c;--name:#8547c7;--gone:#b4530a;--wait:rgba(224,150,30,.2)
"""

_DARK = """
--paper:#0f1217;--card:#181c23;--ink:#e8ebf0;--soft:#a3adba;--faint:#737e8c;--line:#2b313b;--band:#1e232b;
--good:#4ccb98;--good-paper:#11291f;--bad:#ff6b74;--bad-paper:#31161a;--warn:#f2bd5c;--warn-paper:#2c2210;
--warn-line:#a8771f;--stripe:rgba(242,189,92,.1);
--model:#7ea2ff;--kill:#bd8cf2;--errors:#f79454;--nested:#45c4cf;--rot:#e08bb4;--cut:#a3c26b;--other:#9aa3af;
--write:#7ea2ff;--sync:#4ccb98;--name:#bd8cf2;--gone:#f79454;--wait:rgba(242,189,92,.25)
"""

_RULES = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
main{max-width:1240px;margin:0 auto;padding:32px 28px 64px}
h1,h2,h3,p,ul,dl,dd{margin:0;padding:0}
h2{font-size:21px;letter-spacing:-.01em;margin:44px 0 4px}
.lead{color:var(--soft);margin-bottom:12px;max-width:100ch}
code,pre,.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
font-size:.88em}
a{color:inherit}
.kicker{font-size:13px;color:var(--soft);letter-spacing:.02em;margin-bottom:10px;overflow-wrap:anywhere}
.kicker b{color:var(--ink)}

.verdict{border-radius:16px;padding:26px 30px;display:flex;gap:28px;align-items:center;border:1px solid;
flex-wrap:wrap}
.verdict .number{font-size:92px;line-height:.9;font-weight:750;letter-spacing:-.05em;
font-variant-numeric:tabular-nums}
.verdict h1{font-size:27px;line-height:1.2;letter-spacing:-.015em}
.verdict p{margin-top:6px;font-size:16px;color:var(--ink)}
.verdict>div:last-child{flex:1 1 380px;min-width:0}
.fine{background:var(--good-paper);border-color:var(--good)}.fine .number,.fine h1{color:var(--good)}
.broken{background:var(--bad-paper);border-color:var(--bad)}.broken .number,.broken h1{color:var(--bad)}
.empty{background:var(--warn-paper);border-color:var(--warn-line)}.empty .number,.empty h1{
color:var(--warn)}
.facts{display:flex;flex-wrap:wrap;gap:6px 26px;margin:18px 4px 0}
.facts dt{font-size:12px;color:var(--faint)}.facts dd{font-weight:600;overflow-wrap:anywhere}
.facts div{min-width:0}

.loud{
background:repeating-linear-gradient(-45deg,var(--stripe) 0 8px,transparent 8px 16px),var(--warn-paper);
border:1.5px solid var(--warn-line)}
.gaps{border-radius:14px;padding:16px 22px 18px;margin-top:20px;break-inside:avoid}
.gaps h2{margin:0 0 10px;font-size:18px;color:var(--warn)}
.gaps ul{list-style:none;display:grid;gap:7px}
.gaps li{display:grid;grid-template-columns:116px minmax(0,1fr);gap:14px;align-items:baseline}
.gaps li>span:last-child{overflow-wrap:anywhere}
.pill{display:inline-block;border-radius:99px;padding:1px 10px;font-size:12px;font-weight:700;
letter-spacing:.03em;
white-space:nowrap;text-align:center}
.pill.warn{background:var(--warn);color:var(--warn-paper)}
.pill.good{background:var(--good-paper);color:var(--good)}
.pill.bad{background:var(--bad);color:var(--bad-paper)}
.of{color:var(--hue)}.hue-model{--hue:var(--model)}.hue-kill{--hue:var(--kill)}.hue-errors{
--hue:var(--errors)}
.hue-nested{--hue:var(--nested)}.hue-rot{--hue:var(--rot)}.hue-cut{--hue:var(--cut)}.hue-other{
--hue:var(--other)}
.tint{border:1.5px solid var(--hue);color:var(--hue)}

.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(340px,1fr));gap:16px}
.card{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:18px 20px 16px;
display:flex;
flex-direction:column;break-inside:avoid;min-width:0;border-top:4px solid var(--hue)}
.card.loud{border:2px dashed var(--warn-line);
background:repeating-linear-gradient(-45deg,var(--stripe) 0 8px,
transparent 8px 16px),var(--card)}
.card header{display:flex;justify-content:space-between;gap:10px;align-items:center}
.card h3{font-size:15px}
h3 code{color:var(--hue);font-weight:700;margin-left:7px}
.card .big{font-size:40px;line-height:1.15;font-weight:720;letter-spacing:-.03em;margin-top:8px;
font-variant-numeric:tabular-nums}
.card .big small{font-size:15px;font-weight:500;letter-spacing:0;color:var(--soft);margin-left:8px}
.card .stop{font-size:34px;font-weight:800;letter-spacing:-.01em;color:var(--warn);margin-top:10px;
line-height:1.15}
.card .why{color:var(--warn);font-weight:600;margin:4px 0 8px;overflow-wrap:anywhere}
.bars{display:grid;grid-template-columns:minmax(0,auto) minmax(50px,1fr) auto;gap:5px 12px;
align-items:center;
margin:10px 0 12px;font-size:13px}
.bars dt{color:var(--soft);overflow-wrap:anywhere}.bars dd{font-variant-numeric:tabular-nums;
text-align:right;font-weight:600}
.bar{height:9px;border-radius:5px;background:var(--band);overflow:hidden;display:block}
.bar i{display:block;height:100%;border-radius:5px;background:var(--hue);min-width:2px}
.card footer{margin-top:auto;color:var(--faint);font-size:13px;padding-top:6px;
border-top:1px solid var(--line)}

.totals{margin:12px 0 12px}.totals .stack{height:12px}

.panel{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:18px 22px;
margin-top:16px;
break-inside:avoid}
.panel h3{font-size:16px;margin-bottom:2px}
table{border-collapse:collapse;width:100%;font-size:14px;margin-top:10px}
th{font-weight:500;color:var(--soft);text-align:left;font-size:13px}
td,th{padding:6px 12px 6px 0;border-bottom:1px solid var(--line);vertical-align:middle}
tr:last-child td,tr:last-child th{border-bottom:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
th[scope=row]{color:var(--ink);font-weight:600;overflow-wrap:break-word;min-width:86px;max-width:300px}
td.nil{color:var(--faint)}td.alarm{color:var(--bad);font-weight:800}
.wide{width:42%;min-width:130px}
.stack{display:flex;height:18px;border-radius:5px;overflow:hidden;background:var(--band)}
.stack i{display:block;min-width:2px;border-right:1px solid var(--card)}.stack i:last-child{border-right:0}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin-top:6px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.o-harmless{background:#9aa6b5}.o-repaired{background:#3b9bb5}.o-detected{background:#2c9a6c}.o-silent{
background:var(--bad)}
.o-other{background:var(--other)}

.violation{background:var(--card);border:1px solid var(--line);border-left:5px solid var(--bad);
border-radius:12px;
padding:16px 20px 18px;margin-top:14px}
.violation .badges{display:flex;flex-wrap:wrap;gap:6px 8px;align-items:center;font-size:13px;
color:var(--soft)}
.violation h3{font-size:17px;margin:8px 0 2px;overflow-wrap:anywhere;line-height:1.35}
.violation .hit{color:var(--soft)}.violation .hit b{color:var(--ink)}
.violation .sides{display:grid;grid-template-columns:minmax(0,4fr) minmax(0,6fr);gap:24px;margin-top:12px}
.violation h4{margin:0 0 5px;font-size:12px;font-weight:600;color:var(--faint)}
.violation .sides ul{padding-left:17px;overflow-wrap:anywhere;margin-bottom:14px}
.violation .sides li{margin:2px 0}
.violation .sides li::marker{color:var(--bad)}
.none{color:var(--faint);margin-bottom:14px}
.command{display:block;background:var(--band);border-radius:7px;padding:6px 11px;margin-top:5px;
user-select:all;
overflow-wrap:anywhere}
pre.trace{margin:0;background:var(--band);border-radius:9px;padding:9px 0;overflow-x:auto;font-size:12.5px;
line-height:1.55}
pre.trace span{display:block;padding:0 14px;min-width:max-content}
pre.trace .crash{background:var(--bad);color:var(--bad-paper);font-weight:650}
pre.trace .after{opacity:.55}
details summary{cursor:pointer;color:var(--soft);margin-top:12px;font-weight:600}

.timeline{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:16px 0 12px;
margin-top:16px}
.timeline>header,.timeline>.note,.timeline>.reading{padding:0 20px}
.timeline>header{display:flex;flex-wrap:wrap;gap:2px 18px;align-items:baseline;margin-bottom:10px}
.timeline h3{font-size:17px;overflow-wrap:anywhere}.timeline header span{color:var(--soft);font-size:14px}
.note{color:var(--warn);font-weight:600;margin-bottom:8px;overflow-wrap:anywhere}
.frame{display:flex;border-top:1px solid var(--line);border-bottom:1px solid var(--line)}
.frame>svg{flex:none;border-right:1px solid var(--line)}
.scroll{overflow-x:auto;flex:1;min-width:0}
.scroll:focus-visible{outline:2px solid var(--model);outline-offset:-2px}
svg{display:block}svg text{
font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:var(--ink)}
svg .axis{fill:var(--faint);font-size:11px}svg .dir{font-weight:700}svg .more{fill:var(--soft);
font-style:italic}
.row0{fill:transparent}.row1{fill:var(--band)}.rule{stroke:var(--line);stroke-width:1}
.life{stroke:var(--faint);stroke-width:1;opacity:.5}.wait{fill:var(--wait)}
.w{fill:var(--write)}.w.d{fill:var(--sync)}.s{stroke:var(--sync);stroke-width:2.5}.sd{stroke:var(--sync);
stroke-width:1.2;fill:none}
.c{fill:var(--card);stroke:var(--name);stroke-width:2}.r{fill:var(--name)}.rl{stroke:var(--name);
stroke-width:1.3;opacity:.75}
.x{stroke:var(--gone);stroke-width:2.4;fill:none}.t{fill:var(--gone)}.al{fill:none;stroke:var(--write);
stroke-width:1.3}
.o{fill:var(--faint)}.q{fill:var(--warn)}
.a{stroke:var(--sync);stroke-width:2}.i{stroke:var(--faint);stroke-width:1}
.crashline{stroke:var(--bad);stroke-width:1.8}.flag{fill:var(--bad)}svg .flagtext{fill:var(--bad);
font-weight:700;font-size:11px}
.scroll svg [class]:hover{filter:brightness(1.25)}
.overview{cursor:pointer;width:100%;border-top:1px solid var(--line)}
.view{fill:var(--ink);opacity:.1}
.reading{min-height:24px;font-size:13px;padding-top:7px!important;color:var(--soft);overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:-4px 0 4px}
.legend span{display:inline-flex;align-items:center;gap:6px}
.bands{display:none}

.score{display:flex;gap:24px;align-items:center;flex-wrap:wrap}
.score .big{font-size:56px;font-weight:750;letter-spacing:-.04em;line-height:1;
font-variant-numeric:tabular-nums}
.score .big small{color:var(--faint);font-weight:600;font-size:.6em}
.score>div:last-child{flex:1 1 360px;min-width:0}
.squares{display:flex;flex-wrap:wrap;gap:4px;margin-top:4px}
.squares i{width:17px;height:17px;border-radius:4px;background:var(--hue)}
.squares .missed{background:var(--card);border:3px solid var(--bad)}
.squares .equivalent{background:none;border:2px dotted var(--faint)}
tr.missed td,tr.missed th{background:var(--bad-paper);color:var(--bad)!important;font-weight:650}
tr.missed th{padding-left:8px}
.proof{color:var(--soft);font-size:13px}
body>footer{max-width:1240px;margin:0 auto;padding:0 28px 40px;color:var(--faint);font-size:13px}
@media screen and (max-width:760px){.violation .sides{grid-template-columns:minmax(0,1fr)}.verdict .number{
font-size:64px}
main{padding:18px 14px}.gaps li{grid-template-columns:minmax(0,1fr);gap:2px}.gaps .pill{justify-self:start}}
@media print{:root{--paper:#fff}main{padding:0;max-width:none}body{font-size:11.5px}.frame,.overview,.reading{
display:none!important}
.bands{display:block;border-top:1px solid var(--line)}.bands svg{break-inside:avoid;width:100%;height:auto;
margin-bottom:4px}
.violation{break-inside:avoid}.verdict .number{font-size:64px}.cards{grid-template-columns:repeat(2,1fr);
gap:10px}
.timeline>header{break-after:avoid}h2,.lead{break-after:avoid}h2{margin-top:26px}.listed{break-inside:auto}
pre.trace span{white-space:pre-wrap;min-width:0;overflow-wrap:anywhere}summary{display:none}}
"""

CSS = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
{_RULES}"""
"""Paper is always light."""

SCRIPT = """
addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach(d=>d.open=true));
document.querySelectorAll('.timeline').forEach(box=>{
 const scroll=box.querySelector('.scroll'),reading=box.querySelector('.reading'),
over=box.querySelector('.overview');
 if(!scroll)return;
 const hint=reading.textContent;
 scroll.addEventListener('pointerover',e=>{
  const title=e.target.querySelector&&e.target.querySelector(':scope>title');
  reading.textContent=title?title.textContent:hint});
 const svg=scroll.querySelector('svg');
 const show=x=>scroll.scrollLeft=x-scroll.clientWidth/2;
 document.querySelectorAll('a[data-line^="'+box.id+' "]').forEach(a=>a.addEventListener('click',()=>
  show(+a.dataset.line.split(' ')[1])));
 if(!over)return;
 const view=over.querySelector('.view'),full=svg.width.baseVal.value;
 const move=()=>{view.setAttribute('x',scroll.scrollLeft);
view.setAttribute('width',Math.min(full,scroll.clientWidth))};
 const jump=e=>{const r=over.getBoundingClientRect();show((e.clientX-r.left)/r.width*full)};
 over.addEventListener('pointerdown',e=>{over.setPointerCapture(e.pointerId);jump(e)});
 over.addEventListener('pointermove',e=>e.buttons&&jump(e));
 scroll.addEventListener('scroll',move);addEventListener('resize',move);move();
});
"""


def hue(layer: str) -> str:
    """The class that gives an element its layer's colour."""
    known = ("model", "kill", "errors", "nested", "rot", "cut")
    return f"hue-{layer if layer in known else 'other'}"


def bar(part: float, whole: float) -> Markup:
    """A bar as long as the part is of the whole."""
    width = 100 * part / whole if whole else 0
    return tag("span", tag("i", style=f"width:{width:.1f}%"), class_="bar")


def stack(parts: list[tuple[str, int]], whole: int) -> Markup:
    """Parts of a whole beside each other, each with the class of its colour."""
    shown = (
        tag("i", class_=colour, style=f"width:{100 * part / whole:.2f}%") for colour, part in parts if part
    )
    return tag("div", shown if whole else None, class_="stack")


def key(entries: list[tuple[str, str]]) -> Markup:
    """Which colour is what."""
    return tag(
        "div", (tag("span", joined(tag("i", class_=colour)), name) for colour, name in entries), class_="key"
    )
