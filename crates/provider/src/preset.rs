//! What is known of providers: one small file each, compiled in, with its sources.

use crate::error::ConfigError;
use crate::parse;
use crate::policy::{Carrier, CarrierKind, RawIdempotency, split};
use crate::template::Template;
use crate::text::nearest;
use serde::Deserialize;
use std::sync::LazyLock;

/// The files, by name.
const FILES: [(&str, &str); 35] = [
    ("stripe", include_str!("../presets/stripe.toml")),
    ("stripe_v2", include_str!("../presets/stripe_v2.toml")),
    ("resend", include_str!("../presets/resend.toml")),
    ("increase", include_str!("../presets/increase.toml")),
    ("modern_treasury", include_str!("../presets/modern_treasury.toml")),
    ("square", include_str!("../presets/square.toml")),
    ("paypal", include_str!("../presets/paypal.toml")),
    ("adyen", include_str!("../presets/adyen.toml")),
    ("checkout", include_str!("../presets/checkout.toml")),
    ("aws", include_str!("../presets/aws.toml")),
    ("braintree", include_str!("../presets/braintree.toml")),
    ("column", include_str!("../presets/column.toml")),
    ("flutterwave", include_str!("../presets/flutterwave.toml")),
    ("gocardless", include_str!("../presets/gocardless.toml")),
    ("google_cloud", include_str!("../presets/google_cloud.toml")),
    ("mangopay", include_str!("../presets/mangopay.toml")),
    ("mercado_pago", include_str!("../presets/mercado_pago.toml")),
    ("mollie", include_str!("../presets/mollie.toml")),
    ("moov", include_str!("../presets/moov.toml")),
    ("onesignal", include_str!("../presets/onesignal.toml")),
    ("plaid", include_str!("../presets/plaid.toml")),
    ("ppro", include_str!("../presets/ppro.toml")),
    ("qonto", include_str!("../presets/qonto.toml")),
    ("rapyd", include_str!("../presets/rapyd.toml")),
    ("razorpay_route", include_str!("../presets/razorpay_route.toml")),
    ("razorpayx", include_str!("../presets/razorpayx.toml")),
    ("shopify", include_str!("../presets/shopify.toml")),
    ("solidgate", include_str!("../presets/solidgate.toml")),
    ("svix", include_str!("../presets/svix.toml")),
    ("truelayer", include_str!("../presets/truelayer.toml")),
    ("wise", include_str!("../presets/wise.toml")),
    ("wise_uuid", include_str!("../presets/wise_uuid.toml")),
    ("worldline", include_str!("../presets/worldline.toml")),
    ("zuora", include_str!("../presets/zuora.toml")),
    ("none", include_str!("../presets/none.toml")),
];

/// How a provider treats keys, and where that is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Its name in manifests.
    pub name: String,
    /// The provider, for people.
    pub title: String,
    /// The provider's own pages that it rests on.
    pub source: Vec<String>,
    /// Where the provider is, as `api.example.com` or `*.example.com/v2`: nobody else's methods are there, and all that
    /// are there treat keys so, as far as `endpoints` and the like don't say otherwise. Empty: it has to be named.
    #[serde(default)]
    at: Vec<String>,
    pub(crate) idempotency: RawIdempotency,
}

impl Preset {
    /// The names of all presets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// The name of the preset whose provider serves this URL.
    #[must_use]
    pub fn at(url: &str) -> Option<&'static str> {
        static PLACES: LazyLock<Vec<(&str, Vec<String>)>> = LazyLock::new(|| {
            Preset::names().filter_map(|name| Some((name, Preset::named(name).ok()?.at))).collect()
        });
        PLACES.iter().find(|(_, places)| places.iter().any(|at| is_at(url, at))).map(|(name, _)| *name)
    }

    /// The headers that carry a key at some provider: each name is used for nothing else.
    pub fn headers() -> impl Iterator<Item = &'static str> {
        static HEADERS: LazyLock<Vec<String>> = LazyLock::new(|| {
            let presets = Preset::names().filter_map(|name| Preset::named(name).ok());
            let raw = presets.map(|p| p.idempotency).filter(|i| i.carrier == Some(CarrierKind::Header));
            raw.filter_map(|i| i.name).collect()
        });
        HEADERS.iter().map(String::as_str)
    }

    /// Where the key travels on the method of this `http` (`POST /payments/{id}/refunds`), unless a manifest says
    /// otherwise: the place (`header`, `query` or `body`), and the provider's name of it, in a body a JSON pointer. `None`:
    /// nowhere. `spans`: an argument of the path takes several segments.
    #[must_use]
    pub fn carries(&self, http: &str, spans: bool) -> Option<(&'static str, String)> {
        let (verb, path) = http.split_once(' ')?;
        let verb = http::Method::from_bytes(verb.as_bytes()).ok()?;
        let keys = split(&self.idempotency).ok()?.0?;
        if !keys.cover(&verb, &Template::path(path.trim()).ok()?, spans) {
            return None;
        }
        Some(match keys.carrier {
            Carrier::Header(name) => ("header", name),
            Carrier::Query(name) => ("query", name),
            Carrier::Body(field) => {
                let escaped = field.iter().map(|f| format!("/{}", f.replace('~', "~0").replace('/', "~1")));
                ("body", escaped.collect())
            }
            Carrier::Variable(_) | Carrier::Directive { .. } => return None,
        })
    }

    /// A preset by name.
    ///
    /// # Errors
    /// No such preset; the nearest is suggested.
    pub fn named(name: &str) -> Result<Preset, ConfigError> {
        let Some((_, text)) = FILES.iter().find(|(n, _)| *n == name) else {
            let hint = match nearest(name, Preset::names()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("known: {}", Preset::names().collect::<Vec<_>>().join(", ")),
            };
            return Err(ConfigError::new("preset", format!("there is no preset {name:?}; {hint}")));
        };
        let file = format!("presets/{name}.toml");
        let preset: Preset = parse::toml(&file, text)?;
        split(&preset.idempotency).map_err(|e| ConfigError::new(&file, e))?;
        Ok(preset)
    }
}

/// Whether a URL is https and leads to a place of `at`'s form.
fn is_at(url: &str, at: &str) -> bool {
    let Some(url) = url.strip_prefix("https://") else { return false };
    let (host, path) = url.split_once('/').unwrap_or((url, ""));
    let (place, prefix) = at.split_once('/').unwrap_or((at, ""));
    // What else a URL may have there (a user, a port, what some readers take for a slash) leads elsewhere.
    if !host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-') {
        return false;
    }
    let is_host = match place.strip_prefix('*') {
        Some(domain) => host.len() > domain.len() && host.ends_with(domain),
        None => host == place,
    };
    let below = || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_host && (prefix.is_empty() || below())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::policy::{Basis, Carrier, KeyMode, KeyScope};
    use ledger::Millis;

    #[test]
    fn every_preset_is_sound_and_says_where_it_is_from() {
        for name in Preset::names() {
            let p = Preset::named(name).unwrap();
            assert_eq!(p.name, name);
            assert!(!p.source.is_empty() && p.source.iter().all(|s| s.starts_with("https://")), "{name}");
            let i = &p.idempotency;
            assert!(i.retention_basis.is_some() && i.caches.is_some() && i.replay.is_some(), "{name}");
            let definite = i.definite.clone().unwrap();
            assert!([408, 409, 425, 429].iter().all(|s| !definite.contains(s)), "{name}");
            assert_eq!(i.mode == Some(KeyMode::None), name == "none");
        }
    }

    #[test]
    fn a_provider_is_known_by_its_address() {
        for (url, preset) in [
            ("https://api.stripe.com/v1/refunds", Some("stripe")),
            ("https://api.stripe.com/v1", Some("stripe")),
            ("https://api.stripe.com/v2/core/events", Some("stripe_v2")),
            ("https://checkout-test.adyen.com/v71/payments", Some("adyen")),
            ("https://api.stripe.com/v10/refunds", None),
            ("http://api.stripe.com/v1/refunds", None),
            ("https://api.stripe.com.example.com/v1/refunds", None),
            ("https://api.stripe.com:8443/v1/refunds", None),
            ("https://user@api.stripe.com/v1/refunds", None),
            ("https://example.com/api.stripe.com/v1/refunds", None),
            ("https://9f-Shop-checkout-live.adyenpayments.com/checkout/v71/payments", Some("adyen")),
            ("https://device-api-live.adyen.com/v1/devices/d/sync", None),
            ("https://x@9f-checkout-live.adyenpayments.com/v71/payments", None),
            ("https://evil.example\\.svix.com/api/v1/app", None),
            ("https://api.eu.svix.com/api/v1/app", Some("svix")),
            ("https://svix.com/api/v1/app", None),
        ] {
            assert_eq!(Preset::at(url), preset, "{url}");
        }
    }

    #[test]
    fn no_address_is_that_of_two_presets() {
        let all: Vec<(String, String)> = Preset::names()
            .flat_map(|name| Preset::named(name).unwrap().at.into_iter().map(move |at| (name.to_owned(), at)))
            .collect();
        for (name, at) in &all {
            let url = format!("https://{}", at.replacen('*', "x", 1));
            let whose: Vec<&String> =
                all.iter().filter(|(_, at)| is_at(&url, at)).map(|(name, _)| name).collect();
            assert!(whose.iter().all(|n| *n == name), "{at}: {whose:?}");
            let host = at.split('/').next().unwrap().trim_start_matches(['*', '.']);
            assert!(
                host.contains('.') && host.chars().all(|c| c.is_ascii_lowercase() || ".-".contains(c)),
                "{at}"
            );
        }
    }

    #[test]
    fn facts_of_each() {
        let keys = |name: &str| split(&Preset::named(name).unwrap().idempotency).unwrap().0;
        let stripe = keys("stripe").unwrap();
        assert_eq!(stripe.carrier, Carrier::Header("Idempotency-Key".into()));
        assert_eq!(stripe.replay_for, Some(Millis::secs(23 * 3600)));
        assert!(stripe.replays_first_answer && stripe.published);
        assert_eq!(keys("increase").unwrap().replay_for, None);
        assert!(!keys("modern_treasury").unwrap().replays_first_answer);
        assert_eq!(keys("paypal").unwrap().carrier, Carrier::Header("PayPal-Request-Id".into()));
        assert_eq!(keys("checkout").unwrap().carrier, Carrier::Header("Cko-Idempotency-Key".into()));
        assert_eq!(keys("adyen").unwrap().scope, Some(KeyScope::Region));
        assert!(!keys("adyen").unwrap().published);
        assert!(keys("none").is_none());
        // Whether an endpoint takes a key is said of each by itself.
        for name in ["aws", "square", "truelayer", "google_cloud", "wise_uuid", "solidgate"] {
            assert!(keys(name).is_none(), "{name}");
            assert_eq!(Preset::named(name).unwrap().carries("POST /v2/payments", false), None, "{name}");
        }
        assert!(Preset::named("strype").unwrap_err().message.contains("\"stripe\""));
    }

    #[test]
    fn a_key_without_endpoints_is_said_of_all_of_an_api() {
        // Of each of these the provider's page says that all requests of these verbs take a key.
        let all = [
            "stripe",
            "stripe_v2",
            "increase",
            "modern_treasury",
            "adyen",
            "flutterwave",
            "mangopay",
            "mollie",
            "ppro",
            "svix",
            "zuora",
        ];
        for name in Preset::names() {
            let i = Preset::named(name).unwrap().idempotency;
            let graphql =
                matches!(i.carrier, Some(CarrierKind::GraphqlInput | CarrierKind::GraphqlDirective));
            let everywhere = i.mode == Some(KeyMode::Dynamic) && i.endpoints.is_none() && !graphql;
            assert_eq!(everywhere, all.contains(&name), "{name}");
        }
    }

    #[test]
    fn where_a_key_travels() {
        let carries = |name: &str, http: &str| Preset::named(name).unwrap().carries(http, false);
        let header = Some(("header", "PayPal-Request-Id".to_owned()));
        assert_eq!(carries("paypal", "POST /v2/checkout/orders/{id}/capture"), header);
        assert_eq!(carries("paypal", "POST /v1/payouts"), None);
        assert_eq!(carries("paypal", "GET /v2/checkout/orders"), None);
        let field = Some(("body", "/idempotency_key".to_owned()));
        assert_eq!(carries("plaid", "POST /bank_transfer/create"), field);
        assert_eq!(Preset::named("plaid").unwrap().carries("POST /bank_transfer/create", true), None);
        let headers: Vec<&str> = Preset::headers().collect();
        for name in ["PayPal-Request-Id", "X-idempotence-uuid", "X-GCS-Idempotence-Key", "idempotency"] {
            assert!(headers.contains(&name), "{headers:?}");
        }
        assert!(!headers.contains(&"ClientToken") && !headers.contains(&"requestId"));
    }

    #[test]
    fn what_nobody_published_is_trusted_for_an_hour() {
        let mut raw = Preset::named("stripe").unwrap().idempotency;
        raw.retention_basis = Some(Basis::Unpublished);
        assert_eq!(split(&raw).unwrap().0.unwrap().replay_for, Some(Millis::secs(3600)));
        raw.retention = None;
        raw.margin = None;
        assert!(split(&raw).unwrap().0.unwrap().replay_for.unwrap() < Millis::secs(3600));
        raw.max_len = Some(35);
        assert!(split(&raw).unwrap_err().contains("36"));
    }
}
