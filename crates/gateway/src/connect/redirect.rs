//! Where authorization servers send people back to: each server, for each client, to a place of its own. So an answer that
//! one of them leads back under the state of another is none (RFC 9700, section 4.4.2.2).

use sha2::{Digest as _, Sha256};

/// The path, with the server's own name.
pub(super) const PATH: &str = "/connect/callback/{server}";

/// The redirect that this client must be registered with at this issuer (or token endpoint, where no issuer is told), below
/// the address of the pages.
#[must_use]
pub fn redirect(base: &str, (issuer, client): (&str, &str)) -> String {
    let mut digest = Sha256::new();
    for part in [issuer, client] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let name = ledger::effect::hex(&digest.finalize());
    format!("{base}{}", PATH.replace("{server}", &name[..16]))
}

#[cfg(test)]
mod tests {
    use super::redirect;

    /// Registered at servers that are not ours: it must not change.
    #[test]
    fn each_server_and_client_has_one_that_stays() {
        let at = |issuer, client| redirect("https://mcp.example.com", (issuer, client));
        assert_eq!(
            at("https://login.example.com", "0oa1example"),
            "https://mcp.example.com/connect/callback/df559170fb3f7599"
        );
        assert_ne!(at("https://login.example.com", "a"), at("https://login.example.com", "b"));
        assert_ne!(at("https://one.example", "a"), at("https://two.example", "a"));
        assert_ne!(at("ab", "c"), at("a", "bc"));
    }
}
