//! The manifests on the recipe pages are manifests that work, in both modes, and promise what the pages say.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use counterfoil_provider::{Format, Integration, MethodEffect, Mode};
use ledger::Strategy;
use std::path::Path;

/// The manifests among the code blocks of a page.
fn manifests(page: &str) -> Vec<String> {
    let blocks =
        page.split("```toml\n").skip(1).filter_map(|rest| rest.split_once("```").map(|(block, _)| block));
    blocks.filter(|b| b.starts_with("name = ")).map(str::to_owned).collect()
}

#[test]
fn every_recipe_parses() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recipes");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_name().unwrap().to_string_lossy().into_owned();
        for text in manifests(&std::fs::read_to_string(&path).unwrap()) {
            for mode in [Mode::Sandbox, Mode::Production] {
                let i =
                    Integration::parse(&file, &text, Format::Toml, mode).unwrap_or_else(|e| panic!("{e}"));
                let preset = i.preset().name.clone();
                for m in i.methods().iter().filter(|m| m.effect() == MethodEffect::Mutating) {
                    let r = m.recovery(None).unwrap();
                    if preset != "none" {
                        assert_eq!(r.strategy, Strategy::Key, "{file}: {}", m.canonical_id());
                    }
                    let shown = m.input_schema().to_string();
                    assert!(
                        !shown.contains("idempotency_key") && !shown.to_lowercase().contains("clienttoken")
                    );
                    let window = r.replay_for.map(|w| w.0 / 60_000);
                    seen.push((m.canonical_id().to_owned(), window, r.can_look_up));
                }
            }
        }
    }
    for want in [
        ("square.payments.create", Some(45), false),
        ("paypal.captures.refund", Some(5 * 60), false),
        ("adyen.payments.refund", Some(60), false),
        ("checkout.payments.create", Some(23 * 60), true),
        ("checkout.payments.refund", Some(23 * 60), false),
        ("aws.resources.create", Some(35 * 60 + 55), false),
        ("ec2.volumes.create", Some(10), false),
    ] {
        assert!(
            seen.iter().any(|(id, window, asked)| (id.as_str(), *window, *asked) == want),
            "{want:?}: {seen:?}"
        );
    }
}
