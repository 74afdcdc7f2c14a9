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
