// What browsers have and TypeScript's own declarations lack.

declare class BarcodeDetector {
  constructor(options: { formats: string[] });
  static getSupportedFormats(): Promise<string[]>;
  detect(picture: HTMLVideoElement): Promise<{ rawValue: string }[]>;
}

declare var trustedTypes:
  | { createPolicy(name: string, rules: { createScriptURL(url: string): string }): { createScriptURL(url: string): object } }
  | undefined;

/** Swagger UI, which the page of the API reference loads beside its own script. */
declare function SwaggerUIBundle(options: object): object;
