// Printing opens what is folded; pointing at a mark shows the whole call; the overview moves the timeline.
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
