use tautline_serve::http::{self, HttpResponse};

/// A response on the admin port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminPage {
    /// The HTTP status code.
    pub status: u16,
    /// The content type, such as `application/json`.
    pub content_type: &'static str,
    /// The whole body.
    pub body: String,
}

impl AdminPage {
    /// Creates a response with the status 200 and a JSON body.
    pub fn json(body: String) -> Self {
        Self {
            status: 200,
            content_type: "application/json",
            body,
        }
    }

    /// Creates a response with one line of text, such as an error.
    pub fn text(status: u16, line: impl std::fmt::Display) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: format!("{line}\n"),
        }
    }
}

impl From<AdminPage> for HttpResponse {
    fn from(page: AdminPage) -> Self {
        http::respond(page.status, page.content_type, page.body)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{Ipv4Addr, SocketAddr},
        sync::Arc,
    };

    use tautline_serve::tasks::Tasks;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::{Config, Server};

    struct NoCosts;
    impl crate::RuleProvider for NoCosts {
        async fn endpoint_cost(
            &self,
            _: crate::CostRequest,
        ) -> Result<crate::CostAnswer, crate::ProviderError> {
            Ok(crate::CostAnswer::default())
        }
        async fn evaluate(
            &self,
            _: crate::EvaluationRequest,
        ) -> Result<crate::Evaluation, crate::ProviderError> {
            Ok(crate::Evaluation::compliant(""))
        }
    }

    async fn get(address: SocketAddr, target: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn admin_pages_serves_own_paths_only() {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let config = Config {
            listen: any,
            admin: Some(any),
            ..Config::default()
        };
        let mut server = Server::bind(config).await.unwrap();
        server.admin_pages(|path, query| async move {
            (path == "/mine").then(|| AdminPage::json(format!("[{query:?}]")))
        });
        let admin = server.admin_address().unwrap();
        let mut tasks = Tasks::default();
        server.spawn(Arc::new(NoCosts), &mut tasks).unwrap();

        let mine = get(admin, "/mine?a=%20b").await;
        assert!(mine.starts_with("HTTP/1.1 200"), "{mine}");
        assert!(mine.contains("application/json"), "{mine}");
        assert!(mine.ends_with("[\"a=%20b\"]"), "{mine}");
        assert!(get(admin, "/livez").await.ends_with("ok\n"));
        assert!(get(admin, "/other").await.starts_with("HTTP/1.1 404"));
    }
}
