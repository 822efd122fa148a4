use forebay_pattern::data::*; use forebay_pattern::train::*; use forebay_pattern::*; use std::collections::BTreeSet; use std::time::Instant;
fn main(){ let t=Instant::now(); let rows=synthetic::rows(&synthetic::Plan::default(),1); println!("rows {} in {:?}",rows.len(),t.elapsed());
 let p=alternate_processes(&rows); println!("{p:?}"); 
 for (name,feats) in [("all",&Feature::ALL[..]),("thesis",&Feature::THESIS[..])] {
 let s=Split::new(rows.clone(),BTreeSet::from([32<<10,256<<10]),p.clone(),1);
 println!("{name} train {} test {} val {}",s.train.len(),s.test.len(),s.validation.len());
 for tr in Trainer::ALL { let t=Instant::now(); let m=tr.train(&s.train,feats,"synthetic",1,&mut |_|{}).unwrap(); let d=t.elapsed();
  let c=judge(&m,&s.validation); println!("{:?} train {:?} train {:.4} test {:.4} val {:.4} kappa {:.4}",tr,d,judge(&m,&s.train).accuracy(),judge(&m,&s.test).accuracy(),c.accuracy(),c.kappa()); for r in c.counts{println!("   {r:?}");}
  let mut n=0; for r in &s.validation { let d=m.detect(&r.metrics); if d.pattern!=r.label.class && feats.len()>5 { n+=1; if n<=12 { println!("     {:?} as {:?} {:.2}: {:?} judged {} {:?}",r.label.class,d.pattern,d.probability,r.label,r.metrics.judged,Feature::ALL.iter().take(9).map(|f|format!("{f}={:.2}",f.of(&r.metrics))).collect::<Vec<_>>()); } } }
  if let Kind::Tree(t)=m.kind(){println!("size {}",t.size());}
  println!("{:?}",importance(&m,&s.test,1).iter().take(5).map(|(f,x)|format!("{f} {x:.3}")).collect::<Vec<_>>());
 }}}
