//! The machine-readable description of the queue API.
//!
//! `docs/openapi.yaml` is written by hand; the JSON beside this file is made from it, so that a
//! gateway needs no YAML parser. The tests prove that both are equal and leave nothing out.

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response};

/// The description as JSON, with the default prefix and names.
pub const DOCUMENT: &str = include_str!("openapi.json");

/// `GET {prefix}/openapi.json`. It changes only with the program, so it may be kept for an hour.
pub(super) async fn serve() -> Response<Body> {
    let mut response = Response::new(Body::from(DOCUMENT));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use serde_json::Value;

    use super::*;
    use crate::problem::Code;

    fn root(path: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }

    #[test]
    fn the_json_says_what_the_yaml_says() {
        let yaml = std::fs::read_to_string(root("docs/openapi.yaml")).unwrap();
        let source: Value = serde_yaml::from_str(&yaml).unwrap();
        if std::env::var_os("ANTEROOM_WRITE_OPENAPI").is_some() {
            let text = serde_json::to_string_pretty(&source).unwrap() + "\n";
            return std::fs::write(root("src/api/openapi.json"), text).unwrap();
        }
        assert!(
            serde_json::from_str::<Value>(DOCUMENT).unwrap() == source,
            "out of date: ANTEROOM_WRITE_OPENAPI=1 cargo test --lib api::openapi"
        );
    }

    #[test]
    fn every_endpoint_is_listed() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let mut listed = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in item.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                listed.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
        let expected = [
            "POST /_queue/{queue}/enter",
            "GET /_queue/{queue}/rank",
            "POST /_queue/{queue}/leave",
            "DELETE /_queue/{queue}/token",
            "GET /_queue/{queue}/verify",
            "GET /_queue/{queue}/status",
            "GET /_queue/{queue}/events",
            "GET /_queue/{queue}/page",
            "GET /_queue/openapi.json",
            "GET /rank",
            "POST /queue",
            "GET /allowed",
            "POST /allow",
            "GET /waiting-room",
        ];
        assert_eq!(listed, expected.map(String::from).into());
        let guide = std::fs::read_to_string(root("docs/http-api.md")).unwrap();
        for endpoint in expected {
            assert!(guide.contains(&format!("`{endpoint}")), "docs/http-api.md lacks {endpoint}");
        }
    }

    #[test]
    fn every_problem_code_is_listed_with_its_status() {
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        let schema = &document["components"]["schemas"]["ProblemCode"];
        let listed: Vec<&str> =
            schema["enum"].as_array().unwrap().iter().map(|code| code.as_str().unwrap()).collect();
        assert_eq!(listed, Code::ALL.map(Code::as_str));
        assert_eq!(schema["x-status"].as_object().unwrap().len(), listed.len());
        let guide = std::fs::read_to_string(root("docs/http-api.md")).unwrap();
        for code in Code::ALL {
            let status = code.status().as_u16();
            assert_eq!(schema["x-status"][code.as_str()], status, "{code:?}");
            let row = format!("| `{}` | {status} |", code.as_str());
            assert!(guide.contains(&row), "docs/http-api.md lacks {row}");
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn check(part: &Value, document: &Value) {
            match part {
                Value::Object(members) => {
                    if let Some(Value::String(to)) = members.get("$ref") {
                        let target = document.pointer(to.strip_prefix('#').unwrap());
                        assert!(target.is_some(), "{to}");
                    }
                    members.values().for_each(|member| check(member, document));
                }
                Value::Array(items) => items.iter().for_each(|item| check(item, document)),
                _ => {}
            }
        }
        let document: Value = serde_json::from_str(DOCUMENT).unwrap();
        check(&document, &document);
    }
}
