//! Browser for tests: Chromium without a window, controlled by chromedriver (W3C WebDriver: JSON over HTTP).

use gatun_testkit::{Namespace, Process, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Listen address of chromedriver: the sandbox has its own loopback interface.
const PORT: u16 = 9515;
const DRIVER: &str = "chromedriver";
/// Time limit of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Reason why no browser is available, if so.
pub(crate) fn missing() -> Option<String> {
    gatun_testkit::missing(&[("chromium", "chromium"), (DRIVER, "chromium-driver")])
}

/// Running browser with one tab.
pub(crate) struct Browser {
    _driver: Process,
    session: String,
}

impl Browser {
    pub(crate) fn start() -> Browser {
        let mut command = Command::new(DRIVER);
        command.arg(format!("--port={PORT}")).env("HOME", "/run").env("XDG_RUNTIME_DIR", "/run");
        let driver = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        let listens = || TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).is_ok();
        wait_until("chromedriver", Duration::from_secs(10), listens).unwrap();
        // Chromium has no sandbox for root, and needs none inside that of the test.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--user-data-dir=/run/chromium",
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            // Other tests check certificates.
            "acceptInsecureCerts": true,
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            "goog:chromeOptions": { "args": arguments },
        } } });
        let answer = ask("POST", "/session", &wanted);
        let session = answer["sessionId"].as_str().unwrap_or_else(|| panic!("no browser: {answer}"));
        Browser { session: format!("/session/{session}"), _driver: driver }
    }

    pub(crate) fn open(&self, url: &str) {
        self.tell("/url", &json!({ "url": url }));
    }

    /// Runs a script in the page and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.tell("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Displayed text of the first element that matches a selector.
    pub(crate) fn text(&self, selector: &str) -> String {
        let text = self.run(&format!("return document.querySelector({selector:?})?.innerText ?? ''"));
        text.as_str().unwrap().trim().to_owned()
    }

    /// Waits until a script returns true.
    pub(crate) fn wait(&self, what: &str, seconds: u64, script: &str) {
        let holds = || self.run(script) == true;
        if wait_until(what, Duration::from_secs(seconds), holds).is_err() {
            panic!("not within {seconds} s: {what}; the page says: {}", self.text("body"));
        }
    }

    /// True if the page shows an element.
    pub(crate) fn shows(&self, selector: &str) -> bool {
        self.run(&format!("return document.querySelector({selector:?}).checkVisibility()")) == true
    }

    /// Enters another token.
    pub(crate) fn give(&self, token: &str) {
        self.run(&format!("document.querySelector('#key-text').value = {token:?}"));
        self.run("document.querySelector('#key button').click()");
    }

    /// Sends a DevTools command.
    pub(crate) fn devtools(&self, command: &str, parameters: Value) -> Value {
        self.tell("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    /// Sets the size of the screen and the preferred colour scheme.
    pub(crate) fn look(&self, width: u32, height: u32, scheme: &str) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.devtools("Emulation.setDeviceMetricsOverride", size);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.devtools("Emulation.setEmulatedMedia", features);
    }

    /// Screenshot as PNG.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let png = self.devtools("Page.captureScreenshot", json!({ "format": "png" }));
        from_base64(png["data"].as_str().unwrap())
    }

    /// Log entries since the last call: of the page's console, or of the browser's requests.
    pub(crate) fn log(&self, kind: &str) -> Vec<Value> {
        self.tell("/se/log", &json!({ "type": kind })).as_array().unwrap().clone()
    }

    fn tell(&self, what: &str, body: &Value) -> Value {
        ask("POST", &format!("{}{what}", self.session), body)
    }
}

/// Leads connections to port 8443 of the browser's network to a daemon: `to` is an address of socat in the
/// network of the host.
pub(crate) fn way(host: &Namespace, to: &str) -> [Process; 2] {
    let mut there = host.command("socat");
    let there = there.args(["UNIX-LISTEN:/run/tls,fork", to]);
    let mut here = Command::new("socat");
    let here = here.args(["TCP4-LISTEN:8443,bind=127.0.0.1,fork,reuseaddr", "UNIX-CONNECT:/run/tls"]);
    let both = [Process::start(there).unwrap(), Process::start(here).unwrap()];
    let is_there = || Path::new("/run/tls").exists() && TcpStream::connect("127.0.0.1:8443").is_ok();
    wait_until("the way to the daemon", Duration::from_secs(5), is_there).unwrap();
    both
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            ask("DELETE", &self.session, &json!({}));
        }
    }
}

/// Sends a request to chromedriver, on a new connection.
fn ask(method: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, PORT)).unwrap();
    stream.set_read_timeout(Some(ANSWER_MAX)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    // chromedriver keeps the connection open, also with `connection: close`.
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "no answer: {head}");
    }
    let lines = head.lines().map(str::to_ascii_lowercase);
    let length = lines.filter_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).next();
    let mut body = vec![0; length.expect("an answer's length")];
    reader.read_exact(&mut body).unwrap();
    let mut told: Value = serde_json::from_slice(&body).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{method} {path}: {told}");
    told["value"].take()
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::with_capacity(text.len() / 4 * 3), 0u32, 0);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|&digit| digit == byte)) {
        held = held << 6 | digit as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}
