//! Web page of a running Gatun: static files embedded in the program, and a server that shows them on this
//! host.
//!
//! ```text
//!   page/      HTML, CSS and JavaScript; there is no build step
//!   lib        these files as HTTP answers, with security headers
//!   forward    `gatun web`: the page on a loopback address; forwards requests to the daemon
//! ```
//!
//! The page only uses the API that the command line uses: `default-src 'none'` restricts it to its own files
//! and its own server.
#![forbid(unsafe_code)]

pub mod forward;

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response};

/// File of the page.
struct File {
    /// URL path.
    path: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($path:literal $name:literal $kind:ident;)*) => {
        &[$(File { path: $path, kind: $kind, text: include_str!(concat!("../page/", $name)) }),*]
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const FILES: &[File] = files! {
    "/" "index.html" HTML;
    "/web/style.css" "style.css" CSS;
    "/web/icon.svg" "icon.svg" SVG;
    "/web/act.js" "act.js" JS;
    "/web/api.js" "api.js" JS;
    "/web/app.js" "app.js" JS;
    "/web/ask.js" "ask.js" JS;
    "/web/cluster.js" "cluster.js" JS;
    "/web/cluster_past.js" "cluster_past.js" JS;
    "/web/dom.js" "dom.js" JS;
    "/web/events.js" "events.js" JS;
    "/web/fastpath.js" "fastpath.js" JS;
    "/web/format.js" "format.js" JS;
    "/web/lists.js" "lists.js" JS;
    "/web/now.js" "now.js" JS;
    "/web/pair.js" "pair.js" JS;
    "/web/plot.js" "plot.js" JS;
    "/web/sessions.js" "sessions.js" JS;
    "/web/switches.js" "switches.js" JS;
    "/web/verdict.js" "verdict.js" JS;
    "/web/watch.js" "watch.js" JS;
};

/// Content-Security-Policy of every answer: load and run only what this server has, no framing, no markup
/// from text.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
    trusted-types 'none'";

const GUARDS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
];

/// Returns the file of a path as an answer.
pub fn file(path: &str) -> Option<Response<Bytes>> {
    let file = FILES.iter().find(|file| file.path == path)?;
    let mut response = Response::new(Bytes::from_static(file.text.as_bytes()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(file.kind));
    // A newer daemon has a newer page.
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    guard(response.headers_mut());
    Some(response)
}

/// Adds the security headers.
pub fn guard(headers: &mut HeaderMap) {
    for &(name, value) in GUARDS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn each_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let path = if name == "index.html" { "/".to_owned() } else { format!("/web/{name}") };
            assert!(file(&path).is_some(), "{path}");
            count += 1;
        }
        assert_eq!(count, FILES.len());
        assert!(file("/web/../Cargo.toml").is_none() && file("/web/").is_none());
    }

    #[test]
    fn the_page_follows_its_policy_and_names_no_other_host() {
        for file in FILES {
            let text = file.text.replace("http://www.w3.org/2000/svg", "");
            assert!(!text.contains("://"), "{} names another host", file.path);
            for forbidden in [" style=\"", " onclick=", "innerHTML", "insertAdjacentHTML", "eval("] {
                assert!(!text.contains(forbidden), "{} has {forbidden}", file.path);
            }
        }
        let page = file("/").unwrap();
        let text = std::str::from_utf8(page.body()).unwrap();
        assert!(
            page.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'")
        );
        assert_eq!(
            text.matches("<script").count(),
            text.matches("<script type=\"module\" src=\"/web/").count()
        );
        assert!(!text.contains("<style"));
    }

    #[test]
    fn the_page_requests_only_existing_paths() {
        let mut asked = 0;
        for file in FILES.iter().filter(|file| file.kind == JS) {
            for rest in file.text.split("\"/v1/").skip(1) {
                let path: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '/').collect();
                let known = gatun_api::paths::ENDPOINTS.iter().any(|one| one.path == format!("/v1/{path}"));
                assert!(known, "{} asks for /v1/{path}", file.path);
                asked += 1;
            }
        }
        assert!(asked >= 8, "{asked}");
    }
}
