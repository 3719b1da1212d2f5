import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
    { ignores: ['lib/', 'node_modules/'] },
    js.configs.recommended,
    {
        files: ['**/*.ts'],
        extends: [...tseslint.configs.recommendedTypeChecked],
        languageOptions: {
            parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname },
        },
        rules: {
            '@typescript-eslint/no-floating-promises': [
                'error',
                {
                    allowForKnownSafeCalls: [
                        { from: 'package', name: ['test', 'describe', 'it'], package: 'node:test' },
                    ],
                },
            ],
        },
    },
    {
        files: ['example/*.mjs'],
        languageOptions: {
            globals: {
                document: 'readonly',
                fetch: 'readonly',
                location: 'readonly',
                setTimeout: 'readonly',
                sessionStorage: 'readonly',
            },
        },
    },
);
