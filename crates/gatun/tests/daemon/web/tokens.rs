//! The page over TLS: the role of a token decides what it shows and does.

use super::{ask, complaints, gatun, told};
use crate::browser::{Browser, way};
use gatun_testkit::{Topology, wait_until};
use serde_json::json;
use std::time::Duration;

pub(super) fn the_role_of_a_token_limits_the_page(
    browser: &Browser,
    net: &Topology,
    [reads, writes, asks]: &[String; 3],
) {
    let _way = way(&net.translator, "TCP6:[2001:db8:1::1]:8443");
    browser.open("https://127.0.0.1:8443/");
    browser.wait(
        "that the token is missing",
        10,
        "return document.querySelector('#key-why').textContent.includes('missing token')",
    );
    assert!(browser.shows("#key"));
    let seen = ["#now", "#plot-bits", "#drops", "#events", "nav"].map(|part| browser.shows(part));
    assert_eq!(seen, [false; 5], "charts and lists without a token are empty");
    browser.give("gatun_wrong");
    browser.wait(
        "that it is wrong",
        10,
        "return document.querySelector('#key-why').textContent.includes('unknown token')",
    );
    browser.give(reads);
    browser.wait(
        "who reads",
        10,
        "return document.querySelector('#access').textContent.includes('Signed in as reads at')",
    );
    assert!(!browser.shows("#clear") && !browser.shows("#drain-form") && !browser.shows("#key"));
    assert!(!browser.shows("#who-at"), "questions about the past need a token made with --audit");
    browser.run("document.querySelector('#other-key').click()");
    browser.give(writes);
    browser.wait("what may be done", 10, "return !document.querySelector('#clear').hidden");
    assert!(browser.text("#access").contains("Signed in as writes at"), "{}", browser.text("#access"));
    sessions_end_after_a_confirmation(browser);

    browser.run("document.querySelector('#drain-form').elements.address.value = '192.0.2.2'");
    browser.run("document.querySelector('#drain-form button[value=drain]').click()");
    let drained = "return document.querySelector('#drained').textContent === 'Drained: 1 address.'";
    browser.wait("a drained address", 10, drained);
    let addresses = told("show addresses");
    let of = |address: &str| addresses.as_array().unwrap().iter().find(|a| a["address"] == address).unwrap();
    assert_eq!((&of("192.0.2.2")["drained"], &of("192.0.2.1")["drained"]), (&json!(true), &json!(false)));
    browser.run("document.querySelector('#drain-form').elements.address.value = ''");
    browser.run("document.querySelector('#drain-form').elements.pool.value = 'homes'");
    browser.run("document.querySelector('#drain-form button[value=drain]').click()");
    assert_eq!(browser.text("#sure-text"), "Drain all addresses of pool homes?");
    browser.run("document.querySelector('#sure button[value=yes]').click()");
    let drained = "return /^Drained: [0-9]+ address(es)? of pool homes[.]$/.test(document.querySelector('#drained').textContent)";
    browser.wait("a drained pool", 10, drained);
    assert!(told("show addresses").as_array().unwrap().iter().all(|address| address["drained"] == true));
    questions_about_the_past_are_answered_and_logged(browser, asks);
    let complaints = complaints(browser, "(Unauthorized)");
    assert!(complaints.is_empty(), "{complaints:?}");
}

fn questions_about_the_past_are_answered_and_logged(browser: &Browser, asks: &str) {
    browser.run("document.querySelector('#other-key').click()");
    browser.give(asks);
    browser.wait("a field for the time", 10, "return !document.querySelector('#who-at').hidden");
    let fields = [("outside", "192.0.2.1:40000"), ("at", "2001-01-01T00:00:00Z")];
    ask(browser, "who-form", &fields, "#look-up-answer", "UNKNOWN");
    assert!(
        browser.text("#look-up-answer").contains("the log begins at"),
        "{}",
        browser.text("#look-up-answer")
    );
    let kept = || {
        let logged = gatun("log show --store /run/gatun-web-log").stdout;
        String::from_utf8(logged)
            .unwrap()
            .lines()
            .any(|line| line.contains("asks") && line.contains("192.0.2.1:40000"))
    };
    wait_until("the question in the log", Duration::from_secs(5), kept).unwrap();
}

fn sessions_end_after_a_confirmation(browser: &Browser) {
    browser.run("document.querySelector('#clear').click()");
    assert!(browser.text("#cleared").contains("Enter a filter first") && !browser.shows("#sure"));
    browser.run("document.querySelector('#sessions-form').elements.inside.value = '2001:db8:1::15'");
    browser.run("document.querySelector('#clear').click()");
    assert_eq!(browser.text("#sure-text"), "End all sessions with inside 2001:db8:1::15?");
    browser.run("document.querySelector('#sure button[value=no]').click()");
    browser.wait(
        "nothing",
        5,
        "return document.querySelector('#cleared').textContent === 'No session was ended.'",
    );
    browser.run("document.querySelector('#clear').click()");
    browser.run("document.querySelector('#sure button[value=yes]').click()");
    let ended = "return /^Ended [1-9][0-9]* sessions?/.test(document.querySelector('#cleared').textContent)";
    browser.wait("sessions that ended", 10, ended);
}
