//! Page of a node of a cluster in a real browser: configuration of all nodes, events, and a node that is
//! drained there.

use crate::browser::{self, Browser, way};
use crate::cluster::{Nodes, SHARDS, cluster, is_whole, network, owns, until};
use crate::cluster_config::{applied, minutes, start, words};
use crate::harness::gatun;
use crate::pair::socket;
use crate::pair_tools::at;
use crate::web::{complaints, token};
use gatun_api::types::{Cluster, ClusterEvents};
use gatun_testkit::{PairNetwork, missing, refusal, run_test, wait_until};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Longest wait for the page, s: the machine may be busy, and the page asks etcd every ten seconds.
const WAIT_S: u64 = 40;

/// Configuration of all nodes with another lifetime of UDP sessions, and the page.
fn text(of_udp: u32) -> String {
    let page = "[api]\nlisten_tls = \"0.0.0.0:8443\"\ncertificate = \"/run/api.crt\"\n\
                key = \"/run/api.key\"\ntokens = \"/run/tokens\"\n";
    minutes(of_udp).replace("[api]\n", page)
}

fn no_browser_or_bird() -> Option<String> {
    refusal().or_else(browser::missing).or_else(|| missing(&[("bird", "bird2"), ("etcd", "etcd-server")]))
}

/// Runs `gatun cluster` at a node.
fn ask(number: usize, args: &str) {
    let socket = socket(number);
    let done = gatun(["cluster"].into_iter().chain(args.split(' ')).chain(["--socket", &socket]));
    assert!(done.status.success(), "{}", words(&done));
}

/// Waits until an element has a text that contains a part.
fn until_says(browser: &Browser, selector: &str, part: &str) {
    let script =
        format!("return document.querySelector({selector:?})?.textContent.includes({part:?}) ?? false");
    browser.wait(&format!("{part} in {selector}"), WAIT_S, &script);
}

fn click(browser: &Browser, selector: &str) {
    browser.run(&format!("document.querySelector({selector:?}).click()"));
}

/// Box of the second node.
const SECOND: &str = "#cluster-picture .box:nth-child(2) p";

#[test]
fn the_page_of_a_node_shows_the_configuration_and_events_and_drains_nodes() {
    let test = "cluster_web::the_page_of_a_node_shows_the_configuration_and_events_and_drains_nodes";
    run_test(test, no_browser_or_bird, || {
        let net = network();
        let made =
            gatun("token certificate 127.0.0.1 --certificate /run/api.crt --key /run/api.key".split(' '));
        assert!(made.status.success(), "{}", words(&made));
        let [reads, writes] = ["reads --read-only", "writes --write"].map(token);
        let mut nodes = Nodes::start_by(&net, &|number| start(&net, number, &text(5)));
        applied(1, &text(4), &[]);
        applied(0, &text(3), &["--confirm", "100s"]);
        let _way = way(&net.boxes[0], "TCP4:10.0.9.1:8443");
        let browser = Browser::start();
        browser.look(1280, 1000, "light");
        browser.open("https://127.0.0.1:8443/");
        browser.wait("a question for a token", WAIT_S, "return !document.querySelector('#key').hidden");
        browser.give(&reads);

        until_says(&browser, "#cluster-revision", "Revision 2: on trial by uid 0; all nodes return in ");
        until_says(&browser, SECOND, "here; owns ");
        until_says(&browser, SECOND, "; revision 2, on trial");
        on_trial_a_node_that_differs_waits_for_its_turn(&browser);
        revisions_and_events_are_those_of_the_daemon(&browser);
        let cells = browser.run("return document.querySelectorAll('#cluster-picture li').length");
        assert_eq!(cells, json!(SHARDS));
        let buttons =
            "return [...document.querySelectorAll('#cluster button')].some(one => one.checkVisibility())";
        assert_eq!(browser.run(buttons), false, "a token that only reads drains nothing");
        ask(2, "confirm");
        until_says(&browser, "#cluster-revision", "Revision 2: confirmed by uid 0.");
        until_says(&browser, "#cluster-revisions", "confirmed by uid 0");

        a_node_that_differs_is_named(&browser, &net, &nodes);

        click(&browser, "#other-key");
        browser.give(&writes);
        browser.wait("buttons", WAIT_S, buttons);
        a_node_is_drained_after_a_confirmation(&browser);
        it_has_names_and_fits_a_phone(&browser);
        picture(&browser);

        nodes.stop_etcd();
        until_says(&browser, "#cluster-sub", "This node goes on without etcd: nothing moves.");
        what_was_read_before_stays(&browser);
        let complaints = complaints(&browser, "(Unauthorized)");
        assert!(complaints.is_empty(), "{complaints:?}");
    });
}

/// Changes the daemon's answers of a path on their way to the page, by an expression of `answer`, until the
/// page has its own `fetch` back.
fn change_answers(browser: &Browser, path: &str, change: &str) {
    browser.run(&format!(
        "const real = window.real = window.fetch;
         window.fetch = async (target, options) => {{
             const answer = await real(target, options);
             return target.pathname === {path:?} ? {change} : answer;
         }};"
    ));
}

fn leave_answers(browser: &Browser) {
    browser.run("window.fetch = window.real");
}

/// A trial of three nodes is over too soon to see it without changed answers.
fn on_trial_a_node_that_differs_waits_for_its_turn(browser: &Browser) {
    let differs = "answer.json().then((cluster) => {
        Object.assign(cluster.nodes[1].revision, { differs: true, is_trial: false });
        return new Response(JSON.stringify(cluster));
    })";
    change_answers(browser, "/v1/cluster", differs);
    until_says(browser, SECOND, "; revision 2, differs");
    assert!(!browser.text("#cluster-more").contains("does not run"));
    leave_answers(browser);
    until_says(browser, SECOND, "; revision 2, on trial");
}

/// A daemon that does not answer leaves the page what it has.
fn what_was_read_before_stays(browser: &Browser) {
    let refusal = "new Response('{\"error\":\"no answer\"}', { status: 503 })";
    change_answers(browser, "/v1/cluster/revisions", refusal);
    until_says(browser, "#cluster-revisions-error", "Not up to date: no answer.");
    assert!(browser.text("#cluster-revisions").contains("confirmed by "), "what was read before is gone");
    leave_answers(browser);
}

fn revisions_and_events_are_those_of_the_daemon(browser: &Browser) {
    let first = "return [...document.querySelectorAll('#cluster-revisions td:first-child')]";
    let rows = browser.run(&format!("{first}.map(one => one.textContent)"));
    assert_eq!(rows, json!(["2", "1"]));
    assert!(browser.text("#cluster-revisions tbody tr:first-child").contains("uid 0 at a"));
    let shown = || {
        browser.run(
            "return [...document.querySelectorAll('#cluster-events li span')].map(one => one.textContent)",
        )
    };
    let told = || -> Value {
        let mut told: ClusterEvents = crate::cluster::client(0).get("/v1/cluster/events").unwrap();
        told.events.reverse();
        told.events.into_iter().map(|event| json!(event.what)).collect()
    };
    assert!(!told().as_array().unwrap().is_empty());
    let waited = wait_until("the same events", Duration::from_secs(WAIT_S), || shown() == told());
    assert!(waited.is_ok(), "{:#?} are shown, not {:#?}", shown(), told());
}

/// Somebody changes the configuration of one node.
fn a_node_that_differs_is_named(browser: &Browser, net: &PairNetwork, nodes: &Nodes<'_>) {
    let differs = "b does not run the configuration of the cluster";
    nodes.daemons[1].reload(&text(6), "reload: done");
    until_says(browser, "#cluster-more", differs);
    until_says(browser, SECOND, ", differs");
    let said = || at(net, 0, "doctor --quiet").1;
    let waited = wait_until("the doctor says so, too", Duration::from_secs(WAIT_S), || {
        said().contains(&format!("WRONG cluster: node {differs}"))
    });
    assert!(waited.is_ok(), "{}", said());
    applied(0, &text(2), &[]);
    until_says(browser, "#cluster-revision", "Revision 3: confirmed by ");
    until_says(browser, SECOND, "; revision 3");
    assert!(!browser.text("#cluster-more").contains(differs));
}

fn a_node_is_drained_after_a_confirmation(browser: &Browser) {
    let is_drained = |cluster: &Cluster| cluster.nodes[1].is_drained;
    let drain = "[aria-label='Drain node b']";
    click(browser, drain);
    assert_eq!(browser.text("#sure-text"), "Drain node b?");
    assert!(browser.text("#sure-note").starts_with("Other nodes get its shards; no connection ends."));
    click(browser, "#sure button[value=no]");
    until_says(browser, "#cluster-done", "No node was drained.");
    assert!(!is_drained(&cluster(0)));
    click(browser, drain);
    click(browser, "#sure button[value=yes]");
    until_says(browser, "#cluster-done", "Node b gives its shards away.");
    until(1, "the drained node has nothing", |cluster| {
        is_drained(cluster) && cluster.held().next().is_none()
    });
    until_says(browser, SECOND, "drained; owns 0 shards, backs up 0");
    until_says(browser, "#cluster-events", "node b is drained: it gives its shards away");
    click(browser, "[aria-label='Undrain node b']");
    until_says(browser, "#cluster-done", "Node b gets shards again.");
    until(1, "it has shards again", |cluster| is_whole(cluster, &[]) && owns(cluster, "b"));
    until_says(browser, SECOND, "here; owns ");
}

fn it_has_names_and_fits_a_phone(browser: &Browser) {
    let tree = browser.devtools("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let has = |role: &str, name: &str| {
        nodes.iter().any(|node| {
            node["ignored"] == false && node["role"]["value"] == role && node["name"]["value"] == name
        })
    };
    let named = [
        ("button", "Drain node a"),
        ("button", "Drain node b"),
        ("region", "Configuration of all nodes"),
        ("table", "Configuration revisions of the cluster, the latest first"),
        ("log", "Events of the cluster"),
    ];
    for (role, name) in named {
        assert!(has(role, name), "no {role} has the name {name}");
    }
    browser.look(360, 780, "dark");
    assert_eq!(
        browser.run("return document.documentElement.scrollWidth"),
        360,
        "nothing is wider than the screen"
    );
    let wide = "return [...document.querySelectorAll('#cluster *')].filter(e => !e.closest('.unseen, thead') \
                && e.getBoundingClientRect().right > 361).map(e => e.outerHTML)";
    assert_eq!(browser.run(wide), json!([]));
    browser.look(1280, 1000, "light");
}

/// Takes the picture of docs/how-to/web.md if requested.
fn picture(browser: &Browser) {
    if std::env::var_os("GATUN_BLESS").is_none() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    browser.look(1280, 560, "light");
    browser.run("document.querySelector('#cluster').scrollIntoView()");
    std::thread::sleep(Duration::from_millis(500));
    std::fs::write(folder.join("web-cluster.png"), browser.picture()).unwrap();
    browser.look(1280, 1000, "light");
}
