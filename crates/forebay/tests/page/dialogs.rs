//! The page's questions: who asks, what stands in them, and what becomes of the answers.

use crate::browser::Browser;
use crate::{PATIENCE, answer, pictures, row, seconds};
use forebay_control::client::Client as Arbiter;
use forebay_control::limit::{Limit, Rates, Subject};
use forebay_control::view::JobView;
use forebay_testkit::{ArbiterSpec, Munged, Site, needs, until};
use forebay_types::{NodeId, Secret};
use serde_json::Value;

/// Where users are told apart, the page shows nothing to whoever cannot prove to be an admin, and says so.
#[test]
fn where_users_are_told_apart_the_page_asks_for_the_secret() {
    let name = "the arbiter's page where users are told apart";
    let site = Site::new();
    let Some(munged) = needs(name, &["chromium"]).then(|| Munged::start(name, site.path())).flatten() else {
        return;
    };
    let settings = format!("munge = true\nmunge-socket = {:?}\n", munged.socket());
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let _node = site.node(0, arbiter.url());
    let mut page = Browser::start();
    page.size(400, 800);
    page.open(arbiter.url());
    let notice = "document.getElementById('notice')";
    page.shows("why there is nothing", &format!("/tells users apart/.test({notice}.textContent)"));
    assert_eq!(page.eval("forebay.state.nodes.size"), 0);
    let dir = pictures(&site);
    page.screenshot(&dir.join("page-closed-400.png"));
    page.eval("document.getElementById('login').click()");
    answer(&mut page, "Log in", "1234");
    page.shows("that this is no secret", "/no secret/.test(document.getElementById('toast').textContent)");
    // What is looked at while the arbiter has not answered yet takes no secret away.
    page.eval("document.getElementById('login').click()");
    page.eval("window.really = window.fetch, window.fetch = async (path, ...rest) => { if (path === '/v1/live') await new Promise((done) => setTimeout(done, 1500)); return really(path, ...rest); }");
    answer(&mut page, "Log in", site.secret());
    page.shows("the I/O node", &format!("forebay.state.nodes.size === 1 && {notice}.hidden"));
    page.shows("who leads", "document.getElementById('state').textContent === 'leading'");
    page.view("history");
    page.eval("document.getElementById('login').click()");
    page.shows("nothing any more", &format!("forebay.state.nodes.size === 0 && !{notice}.hidden"));
    assert_eq!(page.complaints, [""; 0], "the page complains");
    another_secret(&mut page);
    assert_eq!(page.eval("forebay.state.nodes.size"), 0);
}

/// A secret, but not this arbiter's: that is said at once, and nobody is logged in.
fn another_secret(page: &mut Browser) {
    page.eval("document.getElementById('login').click()");
    answer(page, "Log in", &"0".repeat(64));
    page.shows(
        "that it is another",
        "/not logged in.*refuses this secret/.test(document.getElementById('toast').textContent)",
    );
    assert_eq!(page.eval("document.getElementById('login').textContent"), "Log in");
    assert_eq!(page.eval("sessionStorage.getItem('secret')"), Value::Null);
    page.eval("document.getElementById('login').click()");
    page.shows(
        "the question alone",
        "document.getElementById('ask').open && document.getElementById('toast').hidden",
    );
    page.eval("document.getElementById('ask-cancel').click()");
}

/// What is limited is seen, what the dialog is not told to change stays, and a wrong secret changes nothing.
#[test]
fn limits_are_seen_and_changed_one_by_one() {
    if !needs("limits on the arbiter's page", &["chromium"]) {
        return;
    }
    let site = Site::new();
    // Nobody renews the job's lease.
    let settings = "lease-ms = 600000\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    site.register(arbiter.url(), "busy", None).expect("an answer").expect("a grant");
    let admin = Arbiter::new(arbiter.url(), Secret::from_hex(site.secret())).expect("an address");
    let until_ms = (seconds() + 3600) * 1000 + 123;
    let set = Limit {
        subject: Subject::Job("busy".into()),
        most: Rates { bandwidth: Some(9_333_333.25), iops: Some(500.0), metadata: Some(50.0) },
        at_least: Some(1e6),
        until_unix_ms: Some(until_ms),
    };
    admin.limit(&set).expect("it is limited");
    let mut page = Browser::start();
    page.size(1280, 900);
    page.open(arbiter.url());
    page.view("jobs");
    page.shows("the limit", &format!("/≤ 9.3 MB.s/.test({})", row("busy")));
    page.eval("document.querySelector('.row.item').click()");
    let said = "document.getElementById('detail').textContent";
    let words = "at most 9.3 MB/s, at most 500 reads and writes a second, at most 50 metadata operations a second, at least 1.0 MB/s, until";
    page.shows("the limit in words", &format!("{said}.includes({words:?})"));
    let fields = "[...document.querySelectorAll('#ask-fields input')]";
    let ask = |page: &mut Browser| {
        page.eval("[...document.querySelectorAll('#detail button')].find((b) => b.textContent === 'Limit…').click()");
        page.shows("the fields", &format!("document.getElementById('ask').open && {fields}.length === 5"));
    };
    let done = |page: &mut Browser| {
        page.eval("document.getElementById('toast').textContent = ''");
        page.eval("document.getElementById('ask-ok').click()");
    };
    let text = "document.getElementById('toast').textContent";
    // Not without the secret, nor with another one.
    ask(&mut page);
    assert_eq!(page.eval(&format!("{fields}[0].value + ' ' + {fields}[1].value")), "9.33333325 500");
    page.eval(&format!("{fields}[0].value = '8'"));
    done(&mut page);
    answer(&mut page, "Log in", &"0".repeat(64));
    page.shows("that it is refused", &format!("/refuses this secret/.test({text})"));
    page.eval("document.getElementById('login').click()");
    answer(&mut page, "Log in", site.secret());
    page.shows("who is in", "document.getElementById('login').textContent === 'Log out'");
    let now = || admin.limits().expect("limits").into_iter().map(|l| l.limit).collect::<Vec<_>>();
    assert_eq!(now(), std::slice::from_ref(&set));
    // Only what was touched changes; what is not a number is not taken for nothing.
    ask(&mut page);
    done(&mut page);
    page.shows("that all is well", &format!("{text} === 'Done.'"));
    assert_eq!(now(), std::slice::from_ref(&set));
    ask(&mut page);
    page.eval(&format!("{fields}[0].value = '8'"));
    done(&mut page);
    page.shows("the new limit", &format!("/≤ 8.0 MB.s/.test({})", row("busy")));
    let most = Rates { bandwidth: Some(8e6), ..set.most };
    assert_eq!(now(), [Limit { most, ..set.clone() }]);
    ask(&mut page);
    page.screenshot(&pictures(&site).join("page-limit.png"));
    page.eval(&format!("{fields}[1].value = '', {fields}[3].value = ''"));
    done(&mut page);
    page.shows("less of it", &format!("!/500/.test({said})"));
    let most = Rates { iops: None, ..most };
    assert_eq!(now(), [Limit { most, at_least: None, ..set.clone() }]);
    // What somebody else has changed while it was open is not overwritten, neither by another limit nor by none.
    for (value, rate) in [("7", 3e6), ("", 4e6)] {
        let (subject, at_least) = (set.subject.clone(), Some(rate));
        let others = Limit { subject, most: Rates::default(), at_least, until_unix_ms: None };
        ask(&mut page);
        page.eval(&format!("{fields}.forEach((f) => f.value = '{value}'); {fields}[4].value = ''"));
        admin.limit(&others).expect("it is limited");
        done(&mut page);
        page.shows("that it is another one", &format!("/somebody has changed the limit/.test({text})"));
        assert_eq!(now(), [others]);
    }
    page.shows("what holds", &format!("/≥ 4.0 MB.s/.test({})", row("busy")));
    ask(&mut page);
    page.eval(&format!("{fields}.forEach((f) => f.value = '')"));
    done(&mut page);
    page.shows("no limit", &format!("!/[≤≥]/.test({}) && !/limited/.test({said})", row("busy")));
    assert_eq!(now(), []);
}

/// What a job has is in the question, and whether it was pinned to it.
#[test]
fn the_question_where_a_job_is_to_be_says_where_it_is() {
    if !needs("pinning on the arbiter's page", &["chromium"]) {
        return;
    }
    let site = Site::new();
    // Nobody renews the job's lease.
    let settings = "lease-ms = 600000\n".into();
    let arbiter = site.arbiter(&ArbiterSpec { settings, ..ArbiterSpec::default() });
    let url = arbiter.url();
    let _nodes = [0, 1].map(|n| site.node(n, url));
    until(PATIENCE, "the nodes do not come", || site.nodes(url).filter(|n| n.len() == 2));
    site.register(url, "busy", None).expect("an answer").expect("a grant");
    let admin = Arbiter::new(url, Secret::from_hex(site.secret())).expect("an address");
    let job = || admin.get::<JobView>("/v1/jobs/busy").expect("the job");
    let mut page = Browser::start();
    page.open(url);
    page.view("jobs");
    page.shows("the job", &row("busy"));
    page.eval("document.querySelector('.row.item').click()");
    let asked = "document.getElementById('ask-text').textContent";
    let field = "document.getElementById('ask-input').value";
    let ask = |page: &mut Browser, nodes: &[NodeId], why: &str| {
        let button =
            "[...document.querySelectorAll('#detail button')].find((b) => b.textContent.startsWith('Pin'))";
        page.shows("the button", &format!("!!{button}"));
        page.eval(&format!("{button}.click()"));
        let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
        page.shows("where it is", &format!("/{why}/.test({asked}) && {field} === '{}'", nodes.join(" ")));
    };
    let has = until(PATIENCE, "it has no I/O node", || Some(job().nodes).filter(|n| !n.is_empty()));
    page.shows(
        "its I/O nodes",
        &format!("String(forebay.state.jobs.get('busy').nodes).length === {}", 2 * has.len() - 1),
    );
    ask(&mut page, &has, "the policy has given it");
    page.screenshot(&pictures(&site).join("page-pin.png"));
    answer(&mut page, "Pin busy", "1");
    answer(&mut page, "Log in", site.secret());
    page.shows("that it is pinned", "String(forebay.state.jobs.get('busy').pinned) === '1'");
    assert_eq!((job().nodes, job().pinned), (vec![NodeId(1)], vec![NodeId(1)]));
    ask(&mut page, &[NodeId(1)], "It is pinned to these");
    answer(&mut page, "Pin busy", "");
    page.shows("that it is not", "forebay.state.jobs.get('busy').pinned.length === 0");
    assert_eq!(page.complaints, [""; 0], "the page complains");
}
