//! From arguments to the request: forms, queries, paths, headers and JSON bodies.

use crate::input::parts;
use crate::manifest::{KEY, effect_key, request};
use crate::tree::{self, Tree};
use provider::{Format, Integration, Mode};
use std::sync::OnceLock;

/// One method for each way in which arguments travel; in each, the effect key travels in another.
const MANIFEST: &str = r#"
name = "p"
base_url = "https://api.example.com/base"
[execution_policy.idempotency]
mode = "dynamic"
header_name = "Idempotency-Key"
methods = ["POST", "DELETE"]
[methods.form]
http = "POST /form"
body = "form"
[methods.json]
http = "POST /json"
idempotency = { carrier = "body", name = "meta.key" }
[methods.path]
http = "GET /things/{id}/sub/{part}"
[methods.query]
http = "DELETE /things"
idempotency = { carrier = "query", name = "k" }
[methods.mixed]
http = "POST /mixed"
params = { head = "header:X-Head", ask = "query:q", deep = "body:/a/b" }
"#;

fn integration() -> &'static Integration {
    static ONE: OnceLock<Integration> = OnceLock::new();
    ONE.get_or_init(|| {
        Integration::parse("p.toml", MANIFEST, Format::Toml, Mode::Production).expect("a good manifest")
    })
}

type Pairs = Vec<(String, String)>;

/// The text of a value that isn't taken apart; `None` for arrays and objects.
fn scalar(value: &Tree) -> Option<String> {
    match value {
        Tree::Null => Some(String::new()),
        Tree::Bool(b) => Some(b.to_string()),
        Tree::Number(text) => spelled(text),
        Tree::String(text) => Some(text.clone()),
        Tree::Array(_) | Tree::Object(_) => None,
    }
}

/// A number without its exponent; `None` if it is longer than 400 digits then.
fn spelled(text: &str) -> Option<String> {
    let Some((number, exponent)) = text.split_once(['e', 'E']) else { return Some(text.to_owned()) };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_start_matches('0');
    if digits.is_empty() {
        return Some("0".into());
    }
    let before = i64::try_from(whole.len()).ok()? - i64::try_from(all.len() - digits.len()).ok()?;
    let before = exponent.parse::<i64>().ok()?.checked_add(before)?;
    (-399..=400).contains(&before).then_some(())?;
    let mut digits = digits.to_owned();
    (before..1).for_each(|_| digits.insert(0, '0'));
    let before = usize::try_from(before.max(1)).ok()?;
    (digits.len()..before).for_each(|_| digits.push('0'));
    let (whole, fraction) = digits.split_at(before);
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    Some(format!("{sign}{whole}{point}{fraction}"))
}

/// Whether one argument may be read as another one, or as what the manifest fills: such a call may be refused.
fn may_be_taken(method: &str, args: &[(String, Tree)]) -> bool {
    let filled: &[&str] = match method {
        "json" => &["meta"],
        "path" => &["id", "part"],
        "query" => &["k"],
        "mixed" => &["head", "ask", "deep", "a", "q"],
        _ => &[],
    };
    let read = |name: &str| {
        let name = name.split('[').next().unwrap_or_default().trim().to_uppercase().to_lowercase();
        name.replace(['.', ' '], "_")
    };
    let placed = |name: &str| ["id", "part", "head", "ask", "deep"].contains(&name);
    args.iter().enumerate().any(|(n, (name, _))| {
        let as_filled = filled.contains(&&*read(name)) && !(placed(name) && filled.contains(&&**name));
        as_filled || args[..n].iter().any(|(other, _)| other != name && read(other) == read(name))
    })
}

/// A value as pairs. `form`: lists are numbered and nothing is left out; else lists repeat their name and what is empty
/// is not sent. `None` if a form can't carry it.
fn pairs(name: &str, value: &Tree, form: bool, depth: usize, out: &mut Pairs) -> Option<()> {
    if depth > 16 {
        return None;
    }
    match value {
        Tree::Array(all) if !all.is_empty() => {
            for (i, item) in all.iter().enumerate() {
                let name = if form { format!("{name}[{i}]") } else { name.to_owned() };
                pairs(&name, item, form, depth + 1, out)?;
            }
        }
        Tree::Object(all) if !all.is_empty() => {
            for (inner, item) in all {
                carried(inner)?;
                pairs(&format!("{name}[{inner}]"), item, form, depth + 1, out)?;
            }
        }
        Tree::Null | Tree::Array(_) | Tree::Object(_) => {
            if form {
                out.push((name.to_owned(), String::new()));
            }
        }
        value => out.push((name.to_owned(), scalar(value)?)),
    }
    Some(())
}

/// Whether a form can carry a name.
fn carried(name: &str) -> Option<()> {
    (!name.is_empty() && !name.contains('[') && !name.contains(']')).then_some(())
}

/// Puts a value into a body; what is there already stays. `None` if its place is taken.
fn put(fields: &mut Vec<(String, Tree)>, path: &[&str], value: Tree) -> Option<()> {
    let (first, rest) = path.split_first()?;
    let at = fields.iter().position(|(name, _)| name == first);
    if rest.is_empty() {
        fields.push((at.is_none().then(|| (*first).to_owned())?, value));
        return Some(());
    }
    let at = at.unwrap_or_else(|| {
        fields.push(((*first).to_owned(), Tree::Null));
        fields.len() - 1
    });
    if fields[at].1 == Tree::Null {
        fields[at].1 = Tree::Object(Vec::new());
    }
    match &mut fields[at].1 {
        Tree::Object(inside) => put(inside, rest, value),
        _ => None,
    }
}

/// What a call must become.
#[derive(Default)]
struct Wanted {
    segments: Vec<String>,
    query: Pairs,
    header: Option<String>,
    body: Option<Body>,
}

enum Body {
    Form(Pairs),
    Json(Tree),
}

fn wanted(method: &str, args: &[(String, Tree)]) -> Option<Wanted> {
    let mut out = Wanted { segments: vec!["base".into()], ..Wanted::default() };
    let mut fields: Vec<(String, Tree)> = Vec::new();
    match method {
        "form" => {
            out.segments.push("form".into());
            let mut all = Vec::new();
            for (name, value) in args {
                carried(name)?;
                pairs(name, value, true, 0, &mut all)?;
            }
            out.body = Some(Body::Form(all));
        }
        "json" => {
            out.segments.push("json".into());
            for (name, value) in args {
                put(&mut fields, &[name], value.clone())?;
            }
            put(&mut fields, &["meta", "key"], Tree::String(KEY.into()))?;
            out.body = Some(Body::Json(Tree::Object(fields)));
        }
        "path" => {
            let segment = |name: &str| {
                let value = args.iter().find(|(n, _)| n == name).map(|(_, v)| scalar(v))??;
                let fits = !value.is_empty()
                    && value != "."
                    && value != ".."
                    && !value.chars().any(|c| c == '/' || c == '\\' || c.is_control());
                fits.then_some(value)
            };
            let (id, part) = (segment("id")?, segment("part")?);
            out.segments.extend(["things".into(), id, "sub".into(), part]);
            for (name, value) in args.iter().filter(|(name, _)| name != "id" && name != "part") {
                pairs(name, value, false, 0, &mut out.query)?;
            }
        }
        "query" => {
            out.segments.push("things".into());
            for (name, value) in args {
                (name != "k").then_some(())?;
                pairs(name, value, false, 0, &mut out.query)?;
            }
            out.query.push(("k".into(), KEY.into()));
        }
        _ => {
            out.segments.push("mixed".into());
            for (name, value) in args {
                match name.as_str() {
                    "head" => {
                        let text = scalar(value)?;
                        if *value != Tree::Null {
                            text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')).then_some(())?;
                            out.header = Some(text);
                        }
                    }
                    "ask" => pairs("q", value, false, 0, &mut out.query)?,
                    "deep" => put(&mut fields, &["a", "b"], value.clone())?,
                    name => put(&mut fields, &[name], value.clone())?,
                }
            }
            out.body = Some(Body::Json(Tree::Object(fields)));
        }
    }
    Some(out)
}

/// Arguments become exactly the pairs, segments, headers and members that the manifest says, or are refused; what is
/// written is read back by standard readers. Parts: the method's name, the arguments.
///
/// # Panics
/// A promise is broken.
pub fn form(data: &[u8]) {
    let [method, args] = parts(data);
    let Ok(args) = std::str::from_utf8(args) else { return };
    let names = ["form", "json", "path", "query"];
    let name = names.into_iter().find(|n| n.as_bytes() == method.trim_ascii()).unwrap_or("mixed");
    let method = integration().method(name).expect("it is in the manifest");
    let made = request(method, args);
    let tree = match tree::read(args.as_bytes(), 64, true) {
        Some(Tree::Object(all)) => all,
        Some(_) => return assert!(made.is_err(), "arguments that are no object"),
        // Deeper members of one name twice are not looked at where nothing is taken apart.
        None => return,
    };
    let wanted = wanted(name, &tree);
    let (made, wanted) = match (made, wanted) {
        (Err(why), wanted) => {
            let long = args.len() > 1 << 10;
            let reason = wanted.is_none() || long || may_be_taken(name, &tree);
            assert!(reason, "refused without a reason: {why}");
            return;
        }
        (Ok(made), None) => panic!("{} is made of what can't be carried", made.uri()),
        (Ok(made), Some(wanted)) => (made, wanted),
    };
    let url = url::Url::parse(&made.uri().to_string()).expect("a URL");
    assert_eq!(url.host_str(), Some("api.example.com"));
    assert_eq!(url.scheme(), "https");
    assert_eq!((url.fragment(), url.username()), (None, ""));
    // A segment is read as the name of a pair: both are escaped in the same way, but for the plus sign.
    let segments: Vec<String> = url
        .path_segments()
        .expect("a path")
        .map(|s| {
            url::form_urlencoded::parse(s.replace('+', "%2B").as_bytes())
                .map(|(k, _)| k.into_owned())
                .collect()
        })
        .collect();
    assert_eq!(segments, wanted.segments, "{url}");
    let query: Pairs = url.query_pairs().into_owned().collect();
    assert_eq!(query, wanted.query, "{url}");
    let header = made.headers().get("x-head").map(http::HeaderValue::as_bytes);
    assert_eq!(header, wanted.header.as_deref().map(str::as_bytes));
    let key = made.headers().get("idempotency-key").map(http::HeaderValue::as_bytes);
    assert_eq!(key.is_some(), name == "form" || name == "mixed");
    assert!(key.is_none_or(|k| k == effect_key().as_str().as_bytes()));
    match wanted.body {
        None => assert!(made.body().is_empty()),
        Some(Body::Form(all)) => {
            let found: Pairs = url::form_urlencoded::parse(made.body()).into_owned().collect();
            assert_eq!(found, all);
        }
        Some(Body::Json(tree)) => assert_eq!(tree::read(made.body(), 66, true), Some(tree)),
    }
}
