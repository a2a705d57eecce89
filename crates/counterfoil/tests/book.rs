//! The book's configurations and manifests are read as the program reads them: each whole, or as the piece that it shows.

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil::config::Config;
use counterfoil::run::{Core, Use};
use provider::{Format, Integration, Mode};
use std::path::{Path, PathBuf};
use toml::{Table, Value};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every page of the book, with its name; and the front page.
fn pages() -> Vec<(String, String)> {
    let mut files = vec![root().join("README.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                files.push(path);
            }
        }
    }
    let read = |file: PathBuf| (file.file_name().unwrap().to_string_lossy().into_owned(), file);
    files.into_iter().map(read).map(|(name, file)| (name, std::fs::read_to_string(file).unwrap())).collect()
}

/// The blocks of TOML of a page.
fn blocks(page: &str) -> Vec<&str> {
    let after = page.split("```toml\n").skip(1);
    after.map(|rest| rest.split_once("\n```").expect("a block ends").0).collect()
}

/// The names `${env:NAME}` in a text, each with a value that fits a password and a master key.
fn environment(text: &str) -> Vec<(String, &'static str)> {
    let names = text.split("${env:").skip(1).filter_map(|rest| rest.split_once('}'));
    names.map(|(name, _)| (name.to_owned(), "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")).collect()
}

fn put(table: &mut Table, key: &str, value: Value) {
    table.entry(key.to_owned()).or_insert(value);
}

fn table(text: &str) -> Value {
    Value::Table(text.parse().unwrap())
}

/// The block as a configuration, with callers that prove who they are where it doesn't say.
fn configuration(block: &Table, dir: &Path) -> Result<Config, String> {
    let mut whole = block.clone();
    put(&mut whole, "auth", table("mode = \"api-key\""));
    let text = whole.to_string();
    let file = dir.join("counterfoil.toml");
    Config::parse(&file, &text, environment(&text)).map_err(|e| e.to_string())
}

/// The block as a manifest, with a name, an address and a method where it has none; or as a preset, whose fields a manifest
/// takes too.
fn manifest(block: &Table) -> Result<Vec<Integration>, String> {
    let mut whole = block.clone();
    if whole.remove("source").is_some()
        && let Some(idempotency) = whole.remove("idempotency")
    {
        let mut policy = Table::new();
        policy.insert("idempotency".to_owned(), idempotency);
        whole.insert("execution_policy".to_owned(), Value::Table(policy));
    }
    put(&mut whole, "name", "book".into());
    let address = "{ sandbox = \"http://127.0.0.1:1\", production = \"https://api.example.com\" }";
    put(&mut whole, "base_url", table(&format!("url = {address}"))["url"].clone());
    put(&mut whole, "methods", table("\"items.create\" = { http = \"POST /items\" }"));
    let text = whole.to_string();
    let read = |mode| Integration::parse("book", &text, Format::Toml, mode).map_err(|e| e.to_string());
    [Mode::Sandbox, Mode::Production].into_iter().map(read).collect()
}

#[tokio::test]
async fn every_block_is_read() {
    let (mut configurations, mut manifests, mut served) = (0, 0, 0);
    for (name, page) in pages() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("integrations")).unwrap();
        let mut configured = Vec::new();
        for block in blocks(&page) {
            let parsed: Table = block.parse().unwrap_or_else(|e| panic!("{name}: {e}\n{block}"));
            // Of a program that uses the library.
            if parsed.keys().all(|key| key == "dependencies") {
                continue;
            }
            match (configuration(&parsed, dir.path()), manifest(&parsed)) {
                (Ok(config), Err(_)) => {
                    configurations += 1;
                    configured.push(config);
                }
                (Err(_), Ok(read)) => {
                    manifests += 1;
                    let file = dir.path().join("integrations").join(format!("{}.toml", read[0].name()));
                    std::fs::write(file, block).unwrap();
                }
                (Ok(_), Ok(_)) => panic!("{name}: it could be either\n{block}"),
                (Err(as_configuration), Err(as_manifest)) => {
                    panic!(
                        "{name}:\n{block}\nas a configuration: {as_configuration}\nas a manifest: {as_manifest}"
                    )
                }
            }
        }
        // What a page configures of its own manifests has to fit them, too.
        for config in configured {
            if !config.integrations.is_empty() && config.integrations.iter().all(|i| i.manifest.exists()) {
                Core::open(config, Use::Catalog).await.unwrap_or_else(|e| panic!("{name}: {e}"));
                served += 1;
            }
        }
    }
    // They are found at all.
    assert!(configurations >= 20 && manifests >= 20 && served >= 14, "{configurations} {manifests} {served}");
}

#[test]
fn the_front_page_counts_the_presets() {
    let page = std::fs::read_to_string(root().join("README.md")).unwrap();
    // One of them says that nothing is known.
    let known = provider::Preset::names().filter(|name| *name != "none").count();
    assert!(page.contains(&format!("({known} of them)")), "{known}");
}
