//! `stockade-cli`: the command line for operators and scripts.
//!
//! Exit 0: done. 1: rejected. 2: usage. 3: not reached, timed out or failed.

mod arguments;
mod feed;
mod lua;
mod order;
mod output;
mod sale;
mod stock;

use arguments::{Arguments, Verb};
use clap::Parser;
use output::{Failure, Output};
use std::process::ExitCode;
use stockade_client::{Client, ClientBuilder};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()) * 2);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime else {
        eprintln!("the runtime could not be started");
        return ExitCode::from(3);
    };
    let out = Output { json: arguments.json };
    match runtime.block_on(run(arguments, &out)) {
        Ok(code) => code,
        Err(failure) => {
            if let Failure::BadRequest(_, form) = &failure {
                out.object(form);
            }
            eprintln!("{failure}");
            failure.exit_code()
        }
    }
}

/// Where the server is. A verb connects when its arguments are read: what can be refused without
/// the server is refused without it.
pub struct Server(ClientBuilder);

impl Server {
    /// Connects.
    pub async fn connect(&self) -> Result<Client, Failure> {
        Ok(self.0.clone().connect().await?)
    }
}

async fn run(arguments: Arguments, out: &Output) -> Result<ExitCode, Failure> {
    let settings = ClientBuilder::new(&arguments.server)
        .name("stockade-cli")
        .token(arguments.token.clone())
        .connect_timeout(arguments.timeout)
        .request_timeout(arguments.timeout);
    let server = Server(settings);
    match arguments.verb {
        Verb::Sale(verb) => sale::run(&server, out, verb).await,
        Verb::Stock(verb) => stock::run(&server, out, verb).await,
        Verb::Order(verb) => order::run(&server, out, verb).await,
        Verb::Feed(verb) => feed::run(&server, out, verb).await,
        Verb::Lua(verb) => lua::run(out, verb),
        Verb::Top { sale, once } => stock::top(&server, out, sale, once).await,
    }
}
