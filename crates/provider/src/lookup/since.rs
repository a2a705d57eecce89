//! Asking only for what is newer than the intent.
//!
//! The moment is the ledger's, and the objects' times are the provider's. Were the ledger's clock ahead, the question would
//! miss the effect; so it begins earlier by a margin, the provider's own clock is read from its answer, and *not found*
//! counts only if the two differ by half of the margin at most and the time between was watched.

use super::pages;
use crate::judge::{Answer, date};
use ledger::{Asked, Millis, Time};
use serde::{Deserialize, Serialize};

/// How much earlier than its intent an effect is looked for, if nobody says.
pub(crate) const DEFAULT_MARGIN: Millis = Millis::secs(3600);

/// How a moment is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SinceForm {
    /// `2026-11-30T10:20:00Z` (RFC 3339).
    Rfc3339,
    /// Seconds since 1970.
    Unix,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Since {
    /// The query parameter that takes the moment.
    pub query: String,
    pub form: SinceForm,
    pub margin: Millis,
}

impl Since {
    /// A question's URL with the moment in it.
    pub(super) fn on(&self, url: &str, asked: Asked) -> String {
        let from = Time(asked.intended_at.0.saturating_sub(self.margin.0).max(0));
        let text = match self.form {
            SinceForm::Unix => (from.0 / 1000).to_string(),
            SinceForm::Rfc3339 => rfc3339(from),
        };
        pages::with(url, &self.query, &text)
    }

    /// Why what was not found may be there all the same, if it may.
    pub(super) fn hides(&self, a: &Answer, asked: Asked) -> Option<&'static str> {
        if !asked.steady {
            return Some(
                "the ledger's clock was set or not watched since then, so what is newer may be older",
            );
        }
        let Some(provider) = a.header("date").and_then(date) else {
            return Some("the answer has no Date, so it is not known whether the clocks agree");
        };
        let ours = i128::from(asked.now.0);
        let apart = (provider.unix_timestamp_nanos() / 1_000_000 - ours).abs();
        (apart > i128::from(self.margin.0 / 2))
            .then_some("the provider's clock and the ledger's differ too much to ask for what is newer")
    }
}

fn rfc3339(at: Time) -> String {
    let moment =
        time::OffsetDateTime::from_unix_timestamp(at.0 / 1000).unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    moment.format(&time::format_description::well_known::Rfc3339).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const NOW: i64 = 1_796_034_000_000;

    fn answer(date: Option<&str>) -> Answer {
        let mut headers = http::HeaderMap::new();
        if let Some(date) = date {
            headers.insert(http::header::DATE, date.parse().unwrap());
        }
        Answer { status: 200, headers, body: bytes::Bytes::new() }
    }

    #[test]
    fn a_moment_in_both_forms_is_earlier_by_the_margin() {
        let asked = Asked { intended_at: Time(NOW), now: Time(NOW + 5000), steady: true };
        let of = |form| Since { query: "since".into(), form, margin: Millis::secs(60) };
        assert_eq!(of(SinceForm::Unix).on("http://h/i", asked), "http://h/i?since=1796033940");
        let url = of(SinceForm::Rfc3339).on("http://h/i?a=1", asked);
        assert_eq!(url, "http://h/i?a=1&since=2026-11-30T10%3A19%3A00Z");
        let early = Asked { intended_at: Time(1), ..asked };
        assert_eq!(of(SinceForm::Unix).on("u", early), "u?since=0");
    }

    #[test]
    fn clocks_that_differ_hide_things() {
        let since = Since { query: "q".into(), form: SinceForm::Unix, margin: Millis::secs(60) };
        let asked = Asked { intended_at: Time(NOW), now: Time(NOW), steady: true };
        let hides = |date: Option<&str>, asked| since.hides(&answer(date), asked).is_some();
        assert!(!hides(Some("Mon, 30 Nov 2026 10:20:00 GMT"), asked));
        assert!(!hides(Some("Mon, 30 Nov 2026 10:20:30 GMT"), asked));
        assert!(!hides(Some("Mon, 30 Nov 2026 10:19:30 GMT"), asked));
        for date in
            [None, Some("soon"), Some("Mon, 30 Nov 2026 10:20:31 GMT"), Some("Mon, 30 Nov 2026 10:19:29 GMT")]
        {
            assert!(hides(date, asked), "{date:?}");
        }
        assert!(hides(Some("Mon, 30 Nov 2026 10:20:00 GMT"), Asked { steady: false, ..asked }));
    }
}
