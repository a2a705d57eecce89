//! `doctor`: whether the user's credential store can be used, and which integrations can't be reached in this mode.

use super::doctor::Report;
use crate::config::Config;
use crate::run::{Loaded, credentials as kept, pages};

/// See the module.
pub(super) fn told(config: &Config, loaded: &Loaded, report: &mut Report) {
    for i in &loaded.integrations {
        if let Some(closed) = i.closed() {
            let what = format!("{}, so each of its methods refuses in this mode", closed.why());
            report.warn(i.name(), what, &closed.mend());
        }
        for seen in i.looks_secret() {
            report.warn(
                i.name(),
                format!("{seen} looks like a credential: it lies in the manifest, is recorded with each call, and is shown"),
                "withdraw it at the provider if it is one, and name the new one in [auth] (kind = \"header\" or \"query\", or `also`)",
            );
        }
    }
    for account in loaded.integrations.iter().filter_map(|i| i.own_account()) {
        let (Some(identity), Some(base)) = (account.identity(), base(config)) else { continue };
        let ((issuer, client), at) = (identity, gateway::redirect(&base, identity));
        report.good(
            &account.account,
            format!("each principal connects at {issuer}, where client {client} must have the redirect {at}"),
        );
    }
    let store = match kept::store() {
        Ok(store) => store,
        // Nobody who needs none is told.
        Err(_) if loaded.integrations.iter().all(|i| i.stored().is_none()) => return,
        Err(e) => return report.error("credentials", e.to_string(), "set it"),
    };
    match store.look() {
        Ok(None) => {}
        Ok(Some(listing)) => {
            let place = listing.key_at.shown(store.folder(), &listing.key_id);
            let unread: Vec<_> =
                listing.entries.iter().filter_map(|e| store.open(&listing, e).err()).collect();
            match unread.first() {
                Some(e) => report.error("credentials", e.to_string(), "put it right, or connect it again"),
                None => report.good(
                    "credentials",
                    format!("{} in {}, under {place}", listing.entries.len(), store.file().display()),
                ),
            }
        }
        Err(e) => report.error(
            "credentials",
            e.to_string(),
            "put it right; calls that need one fail before they send",
        ),
    }
}

/// Where the pages are, to which authorization servers send people back.
fn base(config: &Config) -> Option<String> {
    let base = pages(config, config.server.listen)?;
    Some(base.strip_suffix(":0").map_or_else(|| base.clone(), |base| format!("{base}:PORT")))
}
