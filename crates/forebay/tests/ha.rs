//! Two arbiters on a real etcd cluster of three members, four I/O nodes and eight verifying clients:
//! the leader is killed, stopped and resumed, an etcd member is killed. Somebody leads again soon, the
//! old leader's orders are refused, no job or mapping is lost, and no client sees an error.

use forebay_control::job::JobGrant;
use forebay_control::node::Term;
use forebay_control::view::NodeState;
use forebay_node::control::Command;
use forebay_testkit::{ArbiterProcess, ArbiterSpec, Cluster, NodeProcess, Site, Verifiers, until};
use std::time::{Duration, Instant};

/// A new leader decides within 5 s; on a machine that is busy with other tests, later.
const SOON: Duration = Duration::from_secs(15);
const NODES: usize = 4;
const JOBS: usize = 2;

struct Arbiter {
    process: Option<ArbiterProcess>,
    name: &'static str,
    url: String,
}

struct Scene {
    site: Site,
    cluster: Cluster,
    arbiters: Vec<Arbiter>,
    _nodes: Vec<NodeProcess>,
    jobs: Vec<(JobGrant, String)>,
}

fn spec(name: &str, listen: &str, cluster: &Cluster) -> ArbiterSpec {
    ArbiterSpec {
        name: name.into(),
        listen: listen.into(),
        settings: "policy = \"static\"\n".into(),
        more: vec!["--ha".into(), cluster.url()],
        ..ArbiterSpec::default()
    }
}

impl Scene {
    fn set(cluster: Cluster) -> Scene {
        let site = Site::new();
        let start = |name| {
            let process = site.arbiter(&spec(name, "127.0.0.1:0", &cluster));
            Arbiter { name, url: process.url().to_owned(), process: Some(process) }
        };
        let arbiters = vec![start("first"), start("second")];
        let urls = arbiters.iter().map(|a| a.url.clone()).collect::<Vec<_>>().join(",");
        let nodes = (0..NODES).map(|n| site.node(n, &urls)).collect();
        let mut scene = Scene { site, cluster, arbiters, _nodes: nodes, jobs: Vec::new() };
        let leader = scene.leader();
        scene.all_admitted(leader);
        for n in 0..JOBS {
            let grant = scene.decide(leader, &format!("job-{n}"));
            let secret = scene.site.secret().to_owned();
            scene.jobs.push((grant, secret));
        }
        scene
    }

    /// Which arbiter leads.
    fn leader(&self) -> usize {
        until(SOON, "nobody leads", || {
            let leads = |a: &Arbiter| self.site.health(&a.url).is_some_and(|h| h.state == "leading");
            self.arbiters.iter().position(leads)
        })
    }

    fn all_admitted(&self, leader: usize) {
        until(SOON, "the nodes do not find the leader", || {
            let nodes = self.site.nodes(&self.arbiters[leader].url)?;
            (nodes.len() == NODES && nodes.iter().all(|n| n.state == NodeState::Admitted)).then_some(())
        });
    }

    /// A new job is given I/O nodes by `leader`.
    fn decide(&self, leader: usize, id: &str) -> JobGrant {
        until(SOON, "a new job gets no I/O nodes", || {
            // With a secret of its own, so that it may ask again when an answer was lost.
            let grant = self.site.register(&self.arbiters[leader].url, id, Some(self.site.secret()))?.ok()?;
            (!grant.nodes.is_empty()).then_some(grant)
        })
    }

    /// The other one leads: it knows all jobs as they were, decides, and all nodes follow it.
    fn succeeded(&self, old: usize, before: &forebay_control::view::MappingView, since: Instant, what: &str) {
        let new = 1 - old;
        until(SOON, "the other one does not lead", || {
            self.site.health(&self.arbiters[new].url).filter(|h| h.state == "leading")
        });
        let led = since.elapsed();
        let grant = self.decide(new, &format!("after {what}"));
        println!("{what}: the other leads after {led:?}, and has decided after {:?}", since.elapsed());
        let after = self.site.mapping(&self.arbiters[new].url).expect("the leader shows its mapping");
        assert!(after.term > before.term, "{:?} after {:?}", after.term, before.term);
        assert!(grant.epoch > before.epoch, "no epoch is given out twice");
        for job in &before.jobs {
            let kept =
                after.jobs.iter().find(|j| j.job == job.job).unwrap_or_else(|| panic!("{} is lost", job.job));
            assert!(kept.epoch >= job.epoch, "{kept:?} was {job:?}");
            assert!(!kept.nodes.is_empty());
        }
        self.all_admitted(new);
    }

    fn renew(&self, leader: usize) {
        for (grant, secret) in &self.jobs {
            let renewed = self.site.register(&self.arbiters[leader].url, &grant.id, Some(secret));
            renewed.expect("an answer").expect("the job is known by its secret");
        }
    }
}

#[test]
fn leaders_come_and_go_and_nothing_is_lost() {
    let Some(cluster) = Cluster::start("leaders_come_and_go_and_nothing_is_lost") else { return };
    let mut scene = Scene::set(cluster);
    let clients =
        scene.jobs.iter().flat_map(|(g, s)| (0..4).map(|_| scene.site.client(g, s)).collect::<Vec<_>>());
    let load = Verifiers::start(clients.collect());

    // One who stands by says so, and who leads.
    let first = scene.leader();
    let (leads, stands_by) = (scene.arbiters[first].url.clone(), scene.arbiters[1 - first].url.clone());
    let (status, said) =
        scene.site.register(&stands_by, "nobody", None).expect("an answer").expect_err("a refusal");
    assert_eq!(status, 421, "{said}");
    assert!(said.contains(&leads), "{said}");
    let standby = scene.site.health(&stands_by).expect("it answers");
    assert_eq!((standby.state.as_str(), standby.term), ("standby", Term(0)));

    // The leader is killed.
    let before = scene.site.mapping(&leads).expect("the mapping");
    let since = Instant::now();
    scene.arbiters[first].process = None;
    scene.succeeded(first, &before, since, "a kill");
    load.check();
    let listen = leads.trim_start_matches("http://");
    let process = scene.site.arbiter(&spec(scene.arbiters[first].name, listen, &scene.cluster));
    assert_eq!(process.url(), leads);
    scene.arbiters[first].process = Some(process);
    let second = 1 - first;
    scene.renew(second);

    // The new leader stands still for longer than its lease, and goes on.
    let before = scene.site.mapping(&scene.arbiters[second].url).expect("the mapping");
    let since = Instant::now();
    let stopped = scene.arbiters[second].process.as_ref().expect("it runs");
    stopped.process.freeze().expect("it runs");
    scene.succeeded(second, &before, since, "a stop");
    stopped.process.thaw().expect("it runs");
    until(SOON, "it does not notice that it was replaced", || {
        scene.site.health(&scene.arbiters[second].url).filter(|h| h.state == "standby")
    });
    let leader = scene.leader();
    assert_eq!(leader, first, "the one who came back does not lead");
    load.check();
    scene.renew(leader);

    // What the old one might still say is refused by the nodes.
    let (grant, _) = &scene.jobs[0];
    let newest = scene.site.mapping(&scene.arbiters[leader].url).expect("the mapping").term;
    assert!(newest > before.term);
    let control = JobGrant { id: "control".into(), ..grant.clone() };
    let control = scene.site.client(&control, scene.site.secret());
    for n in 0..grant.addresses.len() {
        let order =
            Command::Mapping { term: before.term, complete: true, jobs: Vec::new(), ended: Vec::new() };
        let said = control.control(n, &serde_json::to_vec(&order).expect("JSON")).expect_err("it is refused");
        assert!(said.to_string().contains(&format!("term {newest} has begun")), "{said}");
    }

    // An etcd member dies: whoever leads then decides soon.
    for member in 0..2 {
        let since = Instant::now();
        scene.cluster.kill(member);
        until(SOON, "nobody decides", || {
            scene.arbiters.iter().find_map(|a| {
                scene
                    .site
                    .register(&a.url, &format!("without member {member}"), Some(scene.site.secret()))?
                    .ok()
                    // A new leader gives nothing that it has not heard of yet.
                    .filter(|decided| !decided.nodes.is_empty())
            })
        });
        println!("without etcd member {member}: decided after {:?}", since.elapsed());
        scene.cluster.launch(member);
        std::thread::sleep(Duration::from_secs(2));
    }
    let leader = scene.leader();
    scene.renew(leader);
    let mapping = scene.site.mapping(&scene.arbiters[leader].url).expect("the mapping");
    for id in ["job-0", "job-1", "after a kill", "after a stop", "without member 0", "without member 1"] {
        assert!(mapping.jobs.iter().any(|j| j.job == id), "{id} is lost: {mapping:?}");
    }
    load.check();
    println!("{} rounds of a write and a read without an error", load.finish());
}
