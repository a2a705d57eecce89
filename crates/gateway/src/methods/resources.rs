//! `resources/read` (spec: server/resources, "Reading Resources").

use super::{TIMEOUT, bounded, failed, params, string};
use crate::asks::{Of, Reading};
use crate::catalog::MAX_URI;
use crate::resource::{Contents, Data};
use crate::service::Shared;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use mcp::error::RpcError;
use mcp::input::Asker;
use mcp::json::quote;
use mcp::server::{Exchange, Notifier, Outcome};
use serde_json::json;

/// The legacy era's code for a resource that isn't there.
const LEGACY_NOT_FOUND: i64 = -32002;

/// There is no such resource: -32602 in the modern era, -32002 in the legacy one, `data.uri` in both.
pub(crate) fn not_found(legacy: bool, uri: &str) -> RpcError {
    let mut e = RpcError::invalid_params(
        "there is no such resource here; resources/list and \
         resources/templates/list tell what there is",
    );
    if legacy {
        e = RpcError { http_status: StatusCode::OK, code: LEGACY_NOT_FOUND, ..e };
        e.message =
            "Resource not found; resources/list and resources/templates/list tell what there is.".into();
    }
    e.with_data(json!({ "uri": uri }))
}

/// Answers `resources/read`.
pub(crate) async fn read(shared: &Shared, exchange: &Exchange, notifier: Notifier) -> Outcome {
    match contents(shared, exchange, notifier).await {
        Ok(Err(asked)) => asked,
        Ok(Ok(text)) if exchange.caller.revision.is_legacy() => {
            crate::result::legacy(format!("{text}}}"), &[])
        }
        // What a resource holds may change at any time, and may be the caller's alone.
        Ok(Ok(text)) => crate::result::modern(
            format!(r#"{text},"ttlMs":0,"cacheScope":"private"}}"#),
            &shared.server_info,
            &[],
        ),
        Err(e) => e.into(),
    }
}

/// The beginning of the result object, or what is asked first.
async fn contents(
    shared: &Shared,
    exchange: &Exchange,
    notifier: Notifier,
) -> Result<Result<String, Outcome>, RpcError> {
    let uri = string(&params(exchange), "uri", "params")?;
    if uri.len() > MAX_URI {
        return Err(RpcError::malformed("params.uri has more than 8 KiB"));
    }
    let missing = || not_found(exchange.caller.revision.is_legacy(), &uri);
    let found = shared.catalog().resource(&uri).ok_or_else(missing)?;
    let of = Of { asker: Asker::ResourcesRead, name: &uri, arguments: None };
    let (reading, context) = Reading::begin(shared, exchange, of, TIMEOUT, notifier).await?;
    let read = bounded(found.reader.read(context, &uri, found.variables)).await;
    if let Some(asked) = reading.end(read.is_ok()).await {
        return Ok(Err(asked));
    }
    let all = read.map_err(|e| failed(e, missing))?;
    let objects: Vec<String> = all.iter().map(object).collect();
    Ok(Ok(format!(r#"{{"contents":[{}]"#, objects.join(","))))
}

fn object(c: &Contents) -> String {
    let mut o = format!(r#"{{"uri":{}"#, quote(&c.uri));
    if let Some(m) = &c.mime_type {
        o.push_str(&format!(r#","mimeType":{}"#, quote(m)));
    }
    match &c.data {
        Data::Text(t) => o.push_str(&format!(r#","text":{}}}"#, quote(t))),
        Data::Blob(b) => o.push_str(&format!(r#","blob":"{}"}}"#, STANDARD.encode(b))),
    }
    o
}
