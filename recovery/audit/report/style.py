"""The style and the script of the page. Both are in its head, so that nothing is fetched."""

from __future__ import annotations

_LIGHT = """
--paper:#f6f7f9;--card:#fff;--ink:#14181f;--soft:#59626f;--faint:#8b94a1;--line:#dfe3e9;--band:#eceff3;
--good:#12805c;--good-paper:#e6f5ee;--bad:#c8202f;--bad-paper:#fdebec;--warn:#8f5200;--warn-paper:#fff3d6;
--warn-line:#e5a83b;--stripe:rgba(229,168,59,.16);--info:#3565d6;--info-paper:#e9effc;
--journal:#b9a3dd;--log:#9cc4b5;--index:#a3bde8;--other:#b6bec9;
--live:#2c9a6c;--dead:#c3a04c;--rest:#ccd3db;--cell:#3f7fb8;--cell-ink:#fff
"""

_DARK = """
--paper:#0f1217;--card:#181c23;--ink:#e8ebf0;--soft:#a3adba;--faint:#737e8c;--line:#2b313b;--band:#222832;
--good:#4ccb98;--good-paper:#11291f;--bad:#ff6b74;--bad-paper:#31161a;--warn:#f2bd5c;--warn-paper:#2c2210;
--warn-line:#a8771f;--stripe:rgba(242,189,92,.1);--info:#7ea2ff;--info-paper:#19233d;
--journal:#54437a;--log:#2c5a4b;--index:#34507f;--other:#454e5b;
--live:#37a878;--dead:#a8842f;--rest:#3a424e;--cell:#2f6799;--cell-ink:#f1f6fb
"""

_PAGE = """
*{box-sizing:border-box}
html{scroll-behavior:smooth;scroll-padding-top:14px}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif;
-webkit-print-color-adjust:exact;print-color-adjust:exact}
main{max-width:1240px;margin:0 auto;padding:32px 28px 48px}
h1,h2,h3,h4,p,ul,dl,dd{margin:0;padding:0}
h2{font-size:21px;letter-spacing:-.01em;margin:46px 0 4px}
h3{font-size:16px}
.lead{color:var(--soft);margin-bottom:12px;max-width:100ch}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
a{color:inherit}
.kicker{font-size:13px;color:var(--soft);letter-spacing:.02em;margin-bottom:10px;overflow-wrap:anywhere}
.kicker b{color:var(--ink)}
.verdict{border-radius:16px;padding:26px 30px;display:flex;gap:28px;align-items:center;border:1px solid;
flex-wrap:wrap}
.verdict .number{font-size:92px;line-height:.9;font-weight:750;letter-spacing:-.05em;
font-variant-numeric:tabular-nums}
.verdict h1{font-size:27px;line-height:1.2;letter-spacing:-.015em}
.verdict p{margin-top:6px;font-size:16px}
.verdict>div:last-child{flex:1 1 380px;min-width:0}
.fine{background:var(--good-paper);border-color:var(--good)}.fine .number,.fine h1{color:var(--good)}
.broken{background:var(--bad-paper);border-color:var(--bad)}.broken .number,.broken h1{color:var(--bad)}
.doubt{background:var(--warn-paper);border-color:var(--warn-line)}
.doubt .number,.doubt h1{color:var(--warn)}
.chips{display:flex;flex-wrap:wrap;gap:6px 8px;margin-top:14px}
.chips a{display:inline-flex;gap:8px;align-items:baseline;border-radius:8px;padding:3px 11px;font-size:13px;
background:var(--card);border:1px solid var(--line);border-left:4px solid var(--hue);text-decoration:none}
.chips a:hover{border-color:var(--hue)}.chips b{font-variant-numeric:tabular-nums}
.chips code{color:var(--soft)}
.facts{display:flex;flex-wrap:wrap;gap:6px 26px;margin:18px 4px 0}
.facts dt{font-size:12px;color:var(--faint)}.facts dd{font-weight:600;overflow-wrap:anywhere}
.facts div{min-width:0}
.loud{border:1.5px solid var(--warn-line);
background:repeating-linear-gradient(-45deg,var(--stripe) 0 8px,transparent 8px 16px),var(--warn-paper)}
.gaps{border-radius:14px;padding:16px 22px 18px;margin-top:20px;break-inside:avoid}
.gaps h2{margin:0 0 10px;font-size:18px;color:var(--warn)}
.gaps ul{list-style:none;display:grid;gap:7px}
.gaps li{display:grid;grid-template-columns:124px minmax(0,1fr);gap:14px;align-items:baseline}
.gaps li>span:last-child{overflow-wrap:anywhere}
.pill{display:inline-block;border-radius:99px;padding:1px 10px;font-size:12px;font-weight:700;
letter-spacing:.03em;white-space:nowrap;text-align:center}
.pill.warn{background:var(--warn);color:var(--warn-paper)}
.pill.good{background:var(--good-paper);color:var(--good)}
.pill.bad{background:var(--bad);color:var(--bad-paper)}
.pill.info{background:var(--info-paper);color:var(--info)}
.panel{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:18px 22px;
margin-top:16px}
.panel>header{display:flex;flex-wrap:wrap;gap:2px 16px;align-items:baseline;margin-bottom:10px}
.panel>header span{color:var(--soft);font-size:14px}
.panel>header h3{overflow-wrap:anywhere}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px;margin-top:10px}
th{font-weight:500;color:var(--soft);text-align:left;font-size:13px;white-space:nowrap}
td,th{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:baseline}
tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.text{white-space:nowrap}td.detail{min-width:230px;overflow-wrap:anywhere}td.nil{color:var(--faint)}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);margin:2px 0 8px}
.key i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;vertical-align:-1px}
.more{color:var(--soft);font-size:14px;margin-top:10px}
details summary{cursor:pointer;color:var(--soft);margin-top:12px;font-weight:600}
body>footer,main>footer{margin-top:44px;color:var(--faint);font-size:13px;overflow-wrap:anywhere}
"""

_FILES = """
.strips{display:grid;grid-template-columns:minmax(110px,max-content) minmax(120px,1fr) max-content;
gap:5px 14px;align-items:center;font-size:13px;margin-top:4px}
.strips>code{white-space:nowrap;overflow:hidden;text-overflow:ellipsis;max-width:230px}
.strips>h4{grid-column:1/-1;font-size:12px;font-weight:600;color:var(--faint);margin-top:8px}
.strips>span{color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums;text-align:right}
.strip{position:relative;height:18px;min-width:6px;border-radius:4px;overflow:hidden;background:var(--other)}
.s-journal{background:var(--journal)}.s-entry-log{background:var(--log)}.s-index{background:var(--index)}
.s-other{background:var(--other)}
.strips>div>.s-other{max-width:64px}
.strip>a{position:absolute;top:0;bottom:0;min-width:3px}
.strip>.at{position:absolute;top:0;bottom:0;left:0;border-right:2px solid var(--ink)}
.strip>.at,.s-before{background:repeating-linear-gradient(90deg,var(--card) 0 1px,transparent 1px 4px)}
.s-before{background-color:var(--journal)!important}
.m-error{background:var(--bad)}.m-warning{background:var(--warn-line)}.m-information{background:var(--info)}
.strip>a.whole{background:none}
.strip>a.whole.m-error{background:repeating-linear-gradient(-45deg,var(--bad) 0 5px,transparent 5px 10px)}
.strip>a.whole.m-warning{
background:repeating-linear-gradient(-45deg,var(--warn-line) 0 5px,transparent 5px 10px)}
.strip>a.whole.m-information{top:auto;height:4px;background:var(--info)}
.strip>a:hover{outline:2px solid var(--ink);outline-offset:-1px;z-index:1}
.mosaic,.strips>p{grid-column:1/-1}
.mosaic{display:flex;flex-wrap:wrap;gap:3px;margin-top:6px}
.mosaic i{width:13px;height:13px;border-radius:3px}
#tip{position:fixed;z-index:9;max-width:min(560px,90vw);background:var(--ink);color:var(--paper);
padding:6px 11px;border-radius:8px;font-size:13px;line-height:1.4;pointer-events:none;overflow-wrap:anywhere;
box-shadow:0 4px 18px rgba(0,0,0,.28)}
"""

_FINDINGS = """
.kind{background:var(--card);border:1px solid var(--line);border-left:5px solid var(--hue);border-radius:12px;
padding:16px 20px 18px;margin-top:14px}
.k-error{--hue:var(--bad)}.k-warning{--hue:var(--warn-line)}.k-information{--hue:var(--info)}
.kind>header{display:flex;flex-wrap:wrap;gap:4px 10px;align-items:center}
.kind h3{font-size:17px}
.kind>header>code{font-weight:700;color:var(--soft)}
.kind>header>span:last-child{margin-left:auto;color:var(--soft);font-size:14px}
.why{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:22px;margin-top:10px}
.why h4{font-size:12px;font-weight:600;color:var(--faint)}
.kind table{font-size:13px;width:auto}.kind td,.kind th{padding-right:22px}
.kind td:last-child,.kind th:last-child{padding-right:0}
.kind td code{white-space:nowrap}
td.look{width:1%}
button.copy{font:inherit;font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;
font-size:12px;border:1px solid var(--line);background:var(--band);color:var(--ink);border-radius:7px;
padding:3px 9px;cursor:copy;text-align:left;user-select:text;white-space:nowrap}
button.copy:hover{border-color:var(--soft)}
button.copy.done::after{content:"  copied";color:var(--good);font-weight:700}
button.copy.refused::after{content:"  select it and copy";color:var(--warn);font-weight:700}
tr:target td{background:var(--warn-paper)}
"""

_SPACE = """
svg{display:block;width:100%;height:auto}
svg text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:var(--cell-ink);pointer-events:none}
svg .small{font-size:11px;opacity:.85}
.cell{fill:var(--cell);stroke:var(--card);stroke-width:1.5}
.cell.unverified{fill:var(--warn-line)}.cell.bad{fill:var(--bad)}.cell.others{fill:var(--rest)}
.cell.others+text,.cell.others+text+text{fill:var(--ink)}
.cell:hover{filter:brightness(1.15)}
.b-cell{background:var(--cell)}.b-unverified{background:var(--warn-line)}.b-bad{background:var(--bad)}
.b-others{background:var(--rest)}
.bars{display:grid;grid-template-columns:minmax(90px,max-content) minmax(120px,1fr) max-content;gap:5px 14px;
align-items:center;font-size:13px}
.bars>span{color:var(--soft);font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}
.stack{display:flex;height:16px;border-radius:4px;overflow:hidden;background:var(--band)}
.stack i{display:block}
.b-live{background:var(--live)}.b-dead{background:var(--dead)}.b-rest{background:var(--rest)}
.b-few{background:var(--bad)}.b-unknown{
background:repeating-linear-gradient(-45deg,var(--rest) 0 4px,transparent 4px 8px)}
"""

_ELSEWHERE = """
@media screen and (max-width:760px){main{padding:18px 14px}.verdict .number{font-size:64px}
.why{grid-template-columns:minmax(0,1fr);gap:10px}.gaps li{grid-template-columns:minmax(0,1fr);gap:2px}
.gaps .pill{justify-self:start}
.panel,.kind{padding-left:14px;padding-right:14px}
.strips{grid-template-columns:minmax(0,max-content) minmax(60px,1fr)}.strips>span{display:none}
.bars{grid-template-columns:minmax(0,max-content) minmax(60px,1fr)}
.bars>span{grid-column:1/-1;text-align:left;white-space:normal;margin-bottom:6px}.strips>code{max-width:120px}}
@media print{main{padding:0;max-width:none}body{font-size:11.5px}.kind,.panel{break-inside:avoid-page}
summary{display:none}button.copy{border:0;background:none;padding:0}}
"""

CSS = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
{_PAGE}{_FILES}{_FINDINGS}{_SPACE}{_ELSEWHERE}"""
"""Printed pages always use the light colours."""

SCRIPT = """
addEventListener('beforeprint',()=>document.querySelectorAll('details').forEach(d=>d.open=true));
const tip=document.createElement('div');tip.id='tip';tip.hidden=true;document.body.append(tip);
const words=e=>{const at=e.target.closest('[title],[data-tip]');if(!at)return null;
 if(at.title){at.dataset.tip=at.title;at.removeAttribute('title')}return at.dataset.tip};
addEventListener('pointerover',e=>{const w=words(e);tip.hidden=!w;if(w)tip.textContent=w});
addEventListener('pointermove',e=>{if(tip.hidden)return;
 const x=Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8),below=e.clientY+18;
 tip.style.left=Math.max(4,x)+'px';
 tip.style.top=(below+tip.offsetHeight>innerHeight?e.clientY-tip.offsetHeight-10:below)+'px'});
addEventListener('click',async e=>{const b=e.target.closest('button.copy');if(!b)return;
 let how='done';
 try{await navigator.clipboard.writeText(b.textContent)}catch{
  const range=document.createRange();range.selectNodeContents(b);
  const all=getSelection();all.removeAllRanges();all.addRange(range);
  if(!document.execCommand('copy'))how='refused'}
 b.classList.add(how);setTimeout(()=>b.classList.remove(how),1600)});
addEventListener('hashchange',()=>{const at=document.getElementById(location.hash.slice(1));
 const box=at&&at.closest('details');if(box&&!box.open){box.open=true;at.scrollIntoView()}});
"""
"""Hovering shows a text, and a click on a command copies it. Without scripts the page shows the
same content.
"""
