// A client in JavaScript, without generated code: methods and messages come from the gateway's reflection.
//   npm install && node client.js [ADDRESS]
import grpc from "@grpc/grpc-js";
import reflected from "grpc-js-reflection-client";

const address = process.argv[2] ?? "127.0.0.1:7000";
const plain = grpc.credentials.createInsecure();

const reflection = new reflected.GrpcReflection(address, plain);
const descriptor = await reflection.getDescriptorBySymbol("fairlead.v1.Inference");
const { fairlead } = descriptor.getPackageObject({ keepCase: true });

const inference = new fairlead.v1.Inference(address, plain);
const metadata = new grpc.Metadata();
const key = process.env.FAIRLEAD_API_KEY;
if (key) metadata.set("authorization", `Bearer ${key}`);

const call = inference.Generate({ prompt: { text: "The tide is" }, sampling: { max_tokens: 24 } }, metadata);
for await (const response of call) {
  if (response.chunk) process.stdout.write(response.chunk.text);
  if (response.finished) console.log(`\n${response.finished.usage.output_tokens} tokens`);
}
inference.close();
