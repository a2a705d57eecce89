//! What a token is bound to.

/// What a token is for. All of it must be the same when it is opened; none of it is in the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context<'a> {
    /// What kind of token it is: `state`, `connect`.
    pub purpose: &'a str,
    /// Which server: `[server] name`, the same on all replicas.
    pub audience: &'a str,
    /// Whose call, from the verified credential.
    pub principal: &'a str,
    /// The method of the protocol: `tools/call`.
    pub method: &'a str,
    /// The tool's canonical id, the resource's URI or the prompt's name.
    pub name: &'a str,
    /// The fingerprint of the arguments, where there are any.
    pub fingerprint: &'a [u8],
}

/// The first of what is authenticated; a new encoding gets a new version.
const DOMAIN: &str = "counterfoil seal context v1";

impl Context<'_> {
    /// As the implicit assertion of a token: two contexts that differ are never the same bytes.
    pub(crate) fn assertion(&self) -> Vec<u8> {
        assertion(&[
            DOMAIN.as_bytes(),
            self.purpose.as_bytes(),
            self.audience.as_bytes(),
            self.principal.as_bytes(),
            self.method.as_bytes(),
            self.name.as_bytes(),
            self.fingerprint,
        ])
    }
}

/// Parts, each after its length.
pub(crate) fn assertion(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(parts.iter().map(|p| p.len() + 8).sum());
    for part in parts {
        out.extend_from_slice(&(part.len() as u64).to_be_bytes());
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn contexts_that_differ_are_other_bytes(
            a in proptest::collection::vec("[ab/:\0]{0,3}", 6),
            b in proptest::collection::vec("[ab/:\0]{0,3}", 6),
        ) {
            fn of(t: &[String]) -> Context<'_> {
                Context {
                    purpose: &t[0], audience: &t[1], principal: &t[2], method: &t[3], name: &t[4],
                    fingerprint: t[5].as_bytes(),
                }
            }
            prop_assert_eq!(of(&a).assertion() == of(&b).assertion(), a == b);
        }
    }
}
